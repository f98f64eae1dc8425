#!/bin/sh
# Makes a case for OpenFOAM's icoFoam in a folder: the flow in a box with a moving lid, in two parts.
set -eu

usage="usage: prepare.sh DIR [END]
Makes the case in DIR. END: simulated seconds; the default takes about a minute on two cores."
case "${1:-}" in '' | -h | --help) echo "$usage"; exit 0 ;; esac
end=${2:-1}
mkdir -p "$1/0" "$1/constant" "$1/system"
cd "$1"

# file PATH CLASS: a dictionary of that class, whose entries come from standard input.
file() {
    { printf 'FoamFile { version 2.0; format ascii; class %s; object %s; }\n' "$2" "$(basename "$1")"; cat; } >"$1"
}
walls='lid { type fixedValue; value uniform (1 0 0); } fixed { type noSlip; } sides { type empty; }'
file 0/U volVectorField <<END
dimensions [0 1 -1 0 0 0 0]; internalField uniform (0 0 0); boundaryField { $walls }
END
file 0/p volScalarField <<END
dimensions [0 2 -2 0 0 0 0]; internalField uniform 0;
boundaryField { lid { type zeroGradient; } fixed { type zeroGradient; } sides { type empty; } }
END
file constant/transportProperties dictionary <<END
nu [0 2 -1 0 0 0 0] 0.01;
END
file system/controlDict dictionary <<END
application icoFoam; startFrom startTime; startTime 0; stopAt endTime; endTime $end; deltaT 0.001;
writeControl timeStep; writeInterval 1000; writePrecision 12; timePrecision 8;
END
file system/blockMeshDict dictionary <<END
scale 0.1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) (40 40 1) simpleGrading (1 1 1));
boundary
(
    lid { type wall; faces ((3 7 6 2)); }
    fixed { type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0)); }
    sides { type empty; faces ((0 3 2 1) (4 5 6 7)); }
);
END
file system/fvSchemes dictionary <<END
ddtSchemes { default Euler; } gradSchemes { default Gauss linear; } divSchemes { default Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; } interpolationSchemes { default linear; }
snGradSchemes { default orthogonal; }
END
file system/fvSolution dictionary <<END
solvers
{
    p { solver PCG; preconditioner DIC; tolerance 1e-06; relTol 0.05; }
    pFinal { solver PCG; preconditioner DIC; tolerance 1e-06; relTol 0; }
    U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-05; relTol 0; }
}
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }
END
file system/decomposeParDict dictionary <<END
numberOfSubdomains 2; method simple; simpleCoeffs { n (2 1 1); delta 0.001; }
END
# Where Debian keeps what all cases use; other installations say it in their module.
: "${WM_PROJECT_DIR:=/usr/share/openfoam}"
export WM_PROJECT_DIR
blockMesh >log.blockMesh
decomposePar >log.decomposePar

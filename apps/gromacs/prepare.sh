#!/bin/sh
# Makes GROMACS's input in a folder from the files that ship with Debian's gromacs-data: a box of 884 waters.
set -eu

usage="usage: prepare.sh DIR [STEPS]
Makes DIR/topol.tpr (and job.sh beside it). STEPS of 2 fs; the default takes about a minute on one core."
case "${1:-}" in '' | -h | --help) echo "$usage"; exit 0 ;; esac
steps=${2:-40000}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"

cat >topol.top <<'END'
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
Water
[ molecules ]
END
cat >run.mdp <<END
integrator = md
dt = 0.002
nsteps = $steps
nstxout-compressed = 1000
nstenergy = 1000
nstlog = 10000
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
constraints = h-bonds
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
gen-temp = 300
gen-seed = 1234
ld-seed = 5678
END
{
    gmx -quiet solvate -cs spc216 -box 3 3 3 -o conf.gro -p topol.top
    # Let go of the overlaps of the filled box first.
    sed 's/^integrator.*/integrator = steep/; s/^nsteps.*/nsteps = 100/; s/^gen-vel.*/gen-vel = no/' run.mdp >relax.mdp
    gmx -quiet grompp -f relax.mdp -c conf.gro -p topol.top -o relax.tpr -po relaxed.mdp -maxwarn 1
    gmx -quiet mdrun -s relax.tpr -deffnm relax -nt 1 -pin off -reprod
    gmx -quiet grompp -f run.mdp -c relax.gro -p topol.top -o topol.tpr -po used.mdp -maxwarn 1
} >prepare.log 2>&1 || { tail -n 30 prepare.log >&2; exit 1; }
# What only led here.
rm -f relax* step*.pdb '#'* conf.gro used.mdp
cp "$here/job.sh" .

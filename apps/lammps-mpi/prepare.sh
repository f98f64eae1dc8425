#!/bin/sh
# Makes LAMMPS's input in a folder: a Lennard-Jones melt, as LAMMPS's own example, whose bits do not depend on luck.
set -eu

usage="usage: prepare.sh DIR [STEPS [SIZE]]
Makes DIR/melt.in (and job.sh beside it): 4*SIZE^3 atoms, 16384 by default.
The default number of STEPS takes about a minute on six ranks and two cores."
case "${1:-}" in '' | -h | --help) echo "$usage"; exit 0 ;; esac
steps=${2:-8000}
size=${3:-16}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cat >"$1/melt.in" <<END
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 $size 0 $size 0 $size
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 500
thermo_modify flush yes
run $steps
write_dump all custom final.dump id x y z vx vy vz modify sort id format float %24.17g
END
cp "$here/job.sh" "$1"

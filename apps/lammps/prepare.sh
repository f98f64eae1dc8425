#!/bin/sh
# Makes LAMMPS's input in a folder from the Lennard-Jones melt that ships with Debian's lammps-examples.
set -eu

usage="usage: prepare.sh DIR [STEPS [SIZE]]
Makes DIR/melt.in and what it needs (and job.sh beside it): 4*SIZE^3 atoms, 16384 by default.
The default number of STEPS takes about a minute on four ranks and two cores."
case "${1:-}" in '' | -h | --help) echo "$usage"; exit 0 ;; esac
steps=${2:-8000}
size=${3:-16}
here=$(cd "$(dirname "$0")" && pwd)
example=/usr/share/lammps/examples/melt/in.melt
mkdir -p "$1"
cd "$1"

# The example as far as its forces; what a restart file does not hold is in rules.in.
sed -n "s/block 0 10 0 10 0 10/block 0 $size 0 $size 0 $size/; /^neighbor/q; p" "$example" >start.in
sed -n '/^neighbor/,/^fix/p' "$example" >rules.in
cat >melt.in <<END
# A Lennard-Jones melt that goes on from melt.restart if there is one.
echo none
log melt.log append
if "\$(is_file(melt.restart)) == 1" then "read_restart melt.restart" else "include start.in"
include rules.in
thermo 500
thermo_modify flush yes
print "LAMMPS starts at step \$(step)"
run $steps upto post no every 50 "include poll.in"
print "final step \$(step) temp \$(temp) pe \$(pe) etotal \$(etotal) press \$(press)" file final.txt
END
# Every rank must take the same branch: rank 0 looks for the file CKPT and tells the others through a file variable.
cat >poll.in <<'END'
shell sh poll.sh
variable want delete
variable want file want
if "${want} == 1" then "write_restart melt.new" "shell sh keep.sh" &
    "print 'checkpoint step=$(step)'"
END
echo 'if [ -e CKPT ]; then echo 1; else echo 0; fi >want' >poll.sh
# The new file takes the old one's name when it is on disk; then CKPT goes, which tells that it is done.
echo 'sync melt.new && mv melt.new melt.restart && sync . && rm -f CKPT' >keep.sh
echo 0 >want
cp "$here/job.sh" "$here/checkpoint.sh" "$here/restart.sh" .

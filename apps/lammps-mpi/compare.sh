#!/bin/sh
# Proves that two LAMMPS runs ended with the same bits: positions and velocities of all atoms.
set -eu

case "${1:-}" in '' | -h | --help) echo "usage: compare.sh DIR_A DIR_B   (exit 0: identical, 1: not)"; exit 0 ;; esac
cmp "$1/final.dump" "$2/final.dump"
echo "final.dump: identical, $(wc -c <"$1/final.dump") bytes, $(md5sum <"$1/final.dump" | cut -c1-32)"

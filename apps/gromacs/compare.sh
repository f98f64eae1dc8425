#!/bin/sh
# Proves that two GROMACS runs ended with the same bytes: final coordinates and the whole trajectory.
set -eu

case "${1:-}" in '' | -h | --help) echo "usage: compare.sh DIR_A DIR_B   (exit 0: identical, 1: not)"; exit 0 ;; esac
result=0
for file in water.gro water.xtc; do
    if cmp "$1/$file" "$2/$file"; then
        echo "$file: identical, $(wc -c <"$1/$file") bytes, $(md5sum <"$1/$file" | cut -c1-32)"
    else
        result=1
    fi
done
exit $result

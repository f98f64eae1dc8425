#!/bin/sh
# Compares the physics at the end of two LAMMPS runs; a restart reorders the atoms, so that bytes cannot agree.
set -eu

usage="usage: compare.sh DIR_A DIR_B   (exit 0: they agree, 1: they do not)
Tolerances: same last step; total energy within 0.1 %, temperature and potential energy within 2 %, pressure within 5 %."
case "${1:-}" in '' | -h | --help) echo "$usage"; exit 0 ;; esac
paste -d ' ' "$1/final.txt" "$2/final.txt" | awk '
function off(a, b) { d = a - b; if (d < 0) d = -d; m = a < 0 ? -a : a; return m > 0 ? d / m : d }
function check(name, a, b, most) {
    o = off(a, b)
    printf "%-7s %14s %14s  differ by %.4f %% of %g %%%s\n", name, a, b, 100 * o, 100 * most, o <= most ? "" : "  TOO MUCH"
    if (o > most) bad = 1
}
{ check("step", $3, $14, 0); check("temp", $5, $16, 0.02); check("pe", $7, $18, 0.02)
  check("etotal", $9, $20, 0.001); check("press", $11, $22, 0.05); seen = 1 }
END { if (!seen) { print "nothing to compare"; exit 1 } exit bad }'

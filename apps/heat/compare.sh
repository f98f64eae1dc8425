#!/bin/sh
# Proves that two heat runs ended with the same bits on the whole grid.
set -eu

case "${1:-}" in '' | -h | --help) echo "usage: compare.sh DIR_A DIR_B   (exit 0: identical, 1: not)"; exit 0 ;; esac
cmp "$1/heat.out" "$2/heat.out" && echo "heat.out: identical, $(cat "$1/heat.out")"

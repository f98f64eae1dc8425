#!/bin/sh
# Proves that two GROMACS runs ended with the same bytes: final coordinates and the whole trajectory.
exec sh "$(dirname "$0")/../gromacs/compare.sh" "$@"

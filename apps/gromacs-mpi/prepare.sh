#!/bin/sh
# Makes GROMACS's input in a folder, as for one core (apps/gromacs), with the job script of three nodes.
set -eu

case "${1:-}" in '' | -h | --help) exec sh "$(dirname "$0")/../gromacs/prepare.sh" "$@" ;; esac
sh "$(dirname "$0")/../gromacs/prepare.sh" "$1" "${2:-10000}"
cp "$(dirname "$0")/job.sh" "$1"

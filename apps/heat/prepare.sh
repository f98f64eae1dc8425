#!/bin/sh
# Builds heat into a folder and puts the batch script beside it.
set -eu

case "${1:-}" in '' | -h | --help) echo "usage: prepare.sh DIR   (makes DIR/heat and DIR/job.sh)"; exit 0 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
to=$(cd "$1" && pwd)
make --silent -C "$here" BUILD="$to"
cp "$here/job.sh" "$to/"

#!/bin/sh
# made.sh BUILT OUT: gathers what a release build makes for installation: programs, plugin, library, pages, completions.
set -eu
built=$1 out=$2
rm -rf "$out"
mkdir -p "$out/bash" "$out/man"
cp "$built/joulepoint" "$built/joulepointd" "$built/joulepoint-relay" "$built/joulepoint-mpi-relay" "$built/libmlog.a" "$out/"
cp "$built/libjoulepoint_mpi.so" "$out/libjoulepoint-mpi-openmpi.so"
cp "$built/libjoulepoint_mpi_mpich.so" "$out/libjoulepoint-mpi-mpich.so"
cp "$built/libjoulepoint_mpi_standard.so" "$out/libjoulepoint-mpi-standard.so"
cp "$built/libjoulepoint.so" "$out/joulepoint.so"
"$built/joulepoint" man --all "$out/man"
"$built/joulepointd" man > "$out/man/joulepointd.8"
"$built/joulepoint-relay" man "$out/man"
"$built/joulepoint-mpi-relay" man "$out/man"
"$built/joulepoint" completion bash > "$out/bash/joulepoint"
"$built/joulepoint" completion zsh > "$out/_joulepoint"
"$built/joulepoint" completion fish > "$out/joulepoint.fish"

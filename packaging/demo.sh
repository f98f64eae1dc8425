#!/bin/sh
# Shows Joulepoint on a private Slurm, from nothing: packaging/demo.sh show APP, or packaging/demo.sh try
# Compiles and installs what that needs and no more, the one beside the other.
set -eu
cd "$(dirname "$0")/.."
built=${CARGO_TARGET_DIR:-target}/demo

# Standard input is for the shell of `try`.
sh packaging/test-packages.sh compile </dev/null >&2
sh packaging/test-packages.sh slurm ${2:-} </dev/null >&2 &
installing=$!
status=0
${CARGO:-cargo} build --locked --profile demo -p cli -p service -p spank-plugin -p mlog -p mpi -p mpi-mpich -p mpi-standard -p mpi-relay -p demo </dev/null || status=$?
wait $installing || status=$?
[ "$status" -eq 0 ] || exit "$status"

case $1 in
    show) exec "$built/demo" show --app "$2" ;;
    try) exec "$built/demo" try ;;
    *) echo "usage: $0 show APP | try" >&2; exit 2 ;;
esac

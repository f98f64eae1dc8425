#!/bin/sh
# Runs mpi4py's own tests over groups and natively, and prints what differs:
#   mpi/tests/mpi4py.sh [LAYOUT [FILES]]      0-1/2-3 and test_* without a word; after `cargo build -p mpi --examples`
# Needs Open MPI with its headers and Python with venv; fetches mpi4py 3.1.6 and numpy by pip. Nothing of it is kept.
set -eu
layout=${1:-0-1/2-3}
files=${2:-test_*}
own=$(cd "$(dirname "$0")/../.." && pwd)
over=${CARGO_TARGET_DIR:-$own/target}/debug/examples/over
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader OMPI_MCA_osc=^rdma,ucx
ranks=$(echo "$layout" | tr '/,' '\n\n' | awk -F- '{ n += (NF > 1 ? $2 - $1 : 0) + 1 } END { print n }')

cd "$folder"
python3 -m venv python
# Its build needs a setuptools that is older than what pip would fetch for it.
python/bin/pip -q install 'setuptools<66' wheel numpy 'cython<3'
MPICC=mpicc python/bin/pip -q install --no-build-isolation --no-binary mpi4py mpi4py==3.1.6
python/bin/pip -q download --no-deps --no-build-isolation --no-binary mpi4py mpi4py==3.1.6
tar xf mpi4py-3.1.6.tar.gz
cd mpi4py-3.1.6

# What each test file says natively and over groups: how many tests, and their end on each rank.
said() { grep -hE '^(OK|FAILED)|^Ran' "$1" | sed 's/ in .*//' | sort | uniq -c | tr -s ' \n' ' ' || true; }
differ=0
for file in test/$files.py; do
    name=$(basename "$file" .py)
    # New processes are refused; test_doc and test_threads are of Python.
    case $name in test_spawn | test_dynproc | test_doc | test_threads) continue ;; esac
    set -- ../python/bin/python test/runtests.py -q --no-threads --no-builddir -i "^$name\$"
    timeout 300 mpirun --oversubscribe -n "$ranks" "$@" >../native 2>&1 </dev/null || true
    timeout 300 "$over" "$layout" "$@" >../groups 2>&1 </dev/null || true
    if [ "$(said ../native)" = "$(said ../groups)" ]; then
        echo "$name: same:$(said ../groups)"
    else
        differ=$((differ + 1))
        echo "$name: natively:$(said ../native)| over groups:$(said ../groups)"
        grep -hE '^(ERROR|FAIL):' ../groups | sort -u | sed 's/^/    /' || true
    fi
done
echo "$differ files differ"

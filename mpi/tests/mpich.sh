#!/bin/sh
# Runs the tests of MPICH's sources over groups and natively, by Open MPI, and prints what differs:
#   mpi/tests/mpich.sh SOURCES [FOLDERS]   SOURCES is test/mpi of MPICH 3.2.1, which is not fetched; after `cargo build -p mpi --examples`
# A test that does not pass natively is left out. Two groups of half of the ranks that its list names; one rank becomes two.
set -eu
sources=$1
folders=${2:-pt2pt coll comm datatype topo group attr init info errhan io rma}
own=$(cd "$(dirname "$0")/../.." && pwd)
over=${CARGO_TARGET_DIR:-$own/target}/debug/examples/over
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader OMPI_MCA_osc=^rdma,ucx

# What its configure would find, and functions that MPI 3 has removed.
for have in STDLIB_H STDIO_H STRING_H UNISTD_H ERRNO_H STDARG_H MEMORY_H SYS_TYPES_H SYS_STAT_H INTTYPES_H STDINT_H LONG_DOUBLE \
    LONG_LONG LONG_LONG_INT MPI_WIN_CREATE GETRUSAGE SYS_RESOURCE_H SYS_TIME_H TIME_H MACRO_VA_ARGS; do
    echo "#define HAVE_$have 1"
done >"$built/mpitestconf.h"
printf '#define STDC_HEADERS 1\n#define USE_STRICT_MPI 1\n' >>"$built/mpitestconf.h"
compile() { mpicc -w "-I$built" "-I$sources/include" -DHAVE_MPITESTCONF_H -DOMPI_OMIT_MPI1_COMPAT_DECLS=0 "$@" 2>/dev/null; }
for part in mtest mtest_datatype mtest_datatype_gen; do compile -c "$sources/util/$part.c" -o "$built/$part.o"; done
compile '-D_Static_assert(a,b)=' -UOMPI_OMIT_MPI1_COMPAT_DECLS -c "$sources/util/dtypes.c" -o "$built/dtypes.o" || true

passes() { timeout -k 1 "$@" </dev/null >"$built/said" 2>&1 && grep -qi 'no errors' "$built/said"; }
span() { if [ "$1" -eq "$2" ]; then echo "$1"; else echo "$1-$2"; fi; }
cd "$built"
for folder in $folders; do
    same=0 all=0
    list=$(cat "$sources/$folder/testlist" "$sources/$folder/testlist.in" 2>/dev/null | awk '$1 !~ /^#/ && NF > 1 { print $1 ":" $2 }' | sort -u)
    for test in $list; do
        name=${test%:*} ranks=${test#*:}
        [ "$ranks" -gt 1 ] || ranks=2
        [ "$ranks" -le 10 ] || ranks=10
        compile "$sources/$folder/$name.c" ./*.o -lm -o program || continue
        passes 60 mpirun --oversubscribe -n "$ranks" ./program || continue
        all=$((all + 1)) half=$((ranks / 2))
        if passes 90 "$over" "$(span 0 $((half - 1)))/$(span $half $((ranks - 1)))" ./program; then
            same=$((same + 1))
        else
            echo "$folder/$name on $ranks: $(grep -m1 . said || echo 'no word within 90 s')"
        fi
    done
    echo "$folder: $same of $all the same"
done

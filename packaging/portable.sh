#!/bin/sh
# Builds what packages deliver so that it needs no more than glibc 2.28 (RHEL 8), and runs on all that is newer; it lies in
# target/portable/release. The compiler and linker are those of zig, from PyPI.
#   packaging/portable.sh [PROFILE]    a profile of cargo, release if none is named
set -eu
cd "$(dirname "$0")/.."
glibc=2.28
triple=$(uname -m)-unknown-linux-gnu
profile=${1:-release}
out=$PWD/target/portable
tools=$out/tools

if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
    mkdir -p "$out"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$tools" \
        "cargo-zigbuild>=0.20" "ziglang>=0.13" || { echo "portable: no zig from PyPI" >&2; exit 1; }
fi
export CARGO_TARGET_DIR="$out/build" PATH="$tools/bin:$PATH" PYTHONPATH="$tools${PYTHONPATH:+:$PYTHONPATH}"
# This machine's libmunge needs this machine's glibc: programs are linked with one that has its functions' names and does nothing.
munge=$(realpath "$(cc -print-file-name=libmunge.so)")
mkdir -p "$out/libraries"
nm -D --defined-only "$munge" | awk '$2 == "T" { print "void " $3 "(void) {}" }' > "$out/libraries/munge.c"
python3 -m ziglang cc -target "$(uname -m)-linux-gnu.$glibc" -shared -o "$out/libraries/libmunge.so" -Wl,-soname,libmunge.so.2 \
    "$out/libraries/munge.c"
RUSTFLAGS="-L native=$out/libraries ${RUSTFLAGS:-}" \
    cargo zigbuild --profile "$profile" --locked --target "$triple.$glibc" \
    -p cli -p service -p spank-plugin -p mlog -p mpi -p mpi-mpich -p mpi-standard -p mpi-relay
rm -rf "$out/release"
folder=$profile
[ "$profile" != dev ] || folder=debug
ln -s "build/$triple/$folder" "$out/release"

# No symbol of a newer glibc: else the programs would not even start there.
bad=0
for file in joulepoint joulepointd joulepoint-relay joulepoint-mpi-relay libjoulepoint.so libjoulepoint_mpi.so \
    libjoulepoint_mpi_mpich.so libjoulepoint_mpi_standard.so; do
    newest=$(objdump -T "$out/release/$file" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
    printf '%-30s %s\n' "$file" "$newest"
    [ "$(printf 'GLIBC_%s\n%s\n' "$glibc" "$newest" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] || bad=1
done
[ "$bad" -eq 0 ] || { echo "portable: something needs a newer glibc than $glibc" >&2; exit 1; }

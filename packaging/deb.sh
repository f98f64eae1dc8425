#!/bin/sh
# Builds the Debian packages from the committed tree and the changes in it; they lie in target/deb.
# BUILT=FOLDER packs what cargo has already built there, such as target/debug, for tests.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/deb-build"
out=$root/target/deb
[ -z "${BUILT:-}" ] || export BUILT=$(cd "$BUILT" && pwd)
rm -rf "$out"
mkdir -p "$out/source"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference --preserve=timestamps -t "$out/source"
cp -r packaging/debian "$out/source/debian"
cd "$out/source"
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -S Timestamp)
export SOURCE_DATE_EPOCH
# The toolchain need not come from a package: only the C libraries are checked.
dpkg-buildpackage --build=binary --unsigned-changes > "$out/build.log" 2>&1 || { tail -n 60 "$out/build.log"; exit 1; }
rm -rf "$out/source"
# For those who compare with the packages or make others of the same build.
echo "${BUILT:-$CARGO_TARGET_DIR/release}" > "$out/built"
ls "$out"/*.deb

#!/bin/sh
# Builds the rpm packages from the build of the Debian packages (make deb comes first), or of the folder BUILT; they lie in
# target/rpm.
set -eu
cd "$(dirname "$0")/.."
tree=$PWD
[ -n "${BUILT:-}" ] || [ -e target/deb/built ] || { echo "rpm: target/deb/built is missing: make deb" >&2; exit 2; }
built=${BUILT:-$(cat target/deb/built)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
out=$tree/target/rpm
rm -rf "$out"
mkdir -p "$out"
# The programs are built and stripped already; the tree is read where it is.
rpmbuild -bb --nodeps --define "_topdir $out/work" --define "_rpmdir $out" --define "version $version" \
    --define "tree $tree" --define "built $built" --define "debug_package %{nil}" \
    --define "source_date_epoch_from_changelog 0" packaging/joulepoint.spec > "$out/build.log" 2>&1 ||
    { tail -n 30 "$out/build.log" >&2; exit 1; }
rm -rf "$out/work"
find "$out" -name '*.rpm'

#!/bin/sh
# Builds the Debian packages twice, in different folders, and compares them byte by byte.
set -eu
cd "$(dirname "$0")/.."
sh packaging/deb.sh > /dev/null
other=$(mktemp -d)
trap 'rm -rf "$other"' EXIT
mkdir "$other/tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference -t "$other/tree"
git -C "$other/tree" init --quiet
CARGO_TARGET_DIR=$other/target sh "$other/tree/packaging/deb.sh" > /dev/null
for deb in target/deb/*.deb; do
    cmp "$deb" "$other/tree/target/deb/${deb##*/}"
    sha256sum "$deb"
done

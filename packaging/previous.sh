#!/bin/sh
# Builds the packages of the version before this one, from its commit: an upgrade begins with them. They lie in
# target/previous. Ends with 77 and a reason where the commit is not there, as in a clone without history.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
# The last one whose store was of version 3. After a release: that release.
commit=9ac53143c03e0a1b3a70ad805e007ec8ed8b9243
out=$root/target/previous
[ "$(cat "$out/commit" 2> /dev/null)" != "$commit" ] || exit 0
git cat-file -e "$commit^{commit}" 2> /dev/null || { echo "previous.sh: commit $commit is not here" >&2; exit 77; }
rm -rf "$out"
git clone --quiet --shared --no-checkout . "$out/tree"
git -C "$out/tree" checkout --quiet "$commit"
# dpkg must know it as older.
sed -i '1s/(\(.*\)-/(\1~before-/' "$out/tree/packaging/debian/changelog"
# In a folder of its own: cargo would take crates of one version for those of the other. The debug build will do here.
export CARGO_TARGET_DIR=$out/build
(cd "$out/tree" && cargo build --quiet --locked -p cli -p service -p spank-plugin -p mlog)
BUILT=$CARGO_TARGET_DIR/debug sh "$out/tree/packaging/deb.sh" > /dev/null
mv "$out"/tree/target/deb/*.deb "$out/"
rm -rf "$out/tree" "$out/build"
echo "$commit" > "$out/commit"

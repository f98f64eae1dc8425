#!/bin/sh
# The release checklist: version, changelog, licences, packages, lintian, reproducibility, rpm, all tests, the pages, the
# matrix. docs/release.md says what comes before and after.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n== %s\n' "$1"; }

say "the version is the same everywhere"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
debian=$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)
[ "${debian%-*}" = "$version" ] || { echo "Cargo.toml says $version, packaging/debian/changelog $debian"; exit 1; }
grep -q "^## $version\$" CHANGELOG.md || { echo "CHANGELOG.md says nothing of $version"; exit 1; }
echo "$version"

say "nothing is uncommitted"
[ -z "$(git status --porcelain)" ] || { git status --short; exit 1; }

say "licences and advisories"
sh packaging/licences.sh

say "packages, twice the same"
sh packaging/reproducible.sh

say "lintian"
lintian --fail-on error target/deb/*.changes

say "rpm"
sh packaging/rpm.sh

say "all tests"
# CI, or make test here, may have just passed on this very commit.
if [ "$(cat target/tested 2> /dev/null)" = "$(git rev-parse HEAD)" ]; then
    echo "make test has passed on this commit"
else
    sh packaging/test.sh
fi

say "the recipes, script by script"
cargo build --workspace
cargo test -p suite --test user_page -- --test-threads=1 --nocapture

say "every series of Slurm"
sh packaging/matrix.sh

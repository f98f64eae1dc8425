#!/bin/sh
# The release checklist: version, changelog, licences, packages, lintian, reproducibility, rpm, and at last all tests.
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
sh packaging/test.sh

say "every series of Slurm"
sh packaging/matrix.sh

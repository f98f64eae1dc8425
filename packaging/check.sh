#!/bin/sh
# What to run while changing code: format, lints, unit tests, and that code, map and docs agree. No cluster, no root.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n== %s\n' "$1"; }

say "format"
cargo fmt --all --check
say "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings
say "unit tests"
cargo test --workspace --exclude suite --lib --bins --quiet
say "map, docs, names; the recipes' syntax"
cargo test -p suite --test tidy --test house --quiet
cargo test -p suite --test user_page --quiet -- every_script_has every_program_of a_block_knows

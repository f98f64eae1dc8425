#!/bin/sh
# Fails if a crate in what is delivered has a licence that does not go with GPL-2.0-or-later, or an advisory.
#
# The list is deny.toml's. Licences come from the crates' own manifests (cargo metadata). Advisories need cargo-deny or
# cargo-audit with their database; where neither is installed this says so, and only the licences are checked.
set -eu
cd "$(dirname "$0")/.."
good=$(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' deny.toml | paste -s -d '|')
delivered="-p cli -p service -p spank-plugin -p mlog -p mpi -p mpi-mpich -p mpi-standard -p mpi-relay"
# shellcheck disable=SC2086  # a list of words
cargo tree --locked $delivered -e normal,build --target all --prefix none --no-dedupe -f '{p}|{l}' | sort -u |
    awk -F '|' -v good="$good" '
        BEGIN { count = split(good, words, "|"); for (i = 1; i <= count; i++) known[words[i]] = 1 }
        # One licence of an OR must be known, every one of an AND.
        function allowed(licence,    parts, n, i) {
            gsub(/[()]/, "", licence); gsub(/\//, " OR ", licence)
            n = split(licence, parts, / AND /)
            for (i = 1; i <= n; i++) if (!one_of(parts[i])) return 0
            return n > 0
        }
        function one_of(part,    parts, n, i) {
            n = split(part, parts, / OR /)
            for (i = 1; i <= n; i++) { gsub(/^ +| +$/, "", parts[i]); if (parts[i] in known) return 1 }
            return 0
        }
        NF { crates++; if (!allowed($2)) { print "licence of " $1 ": \"" $2 "\" is not on the list"; bad = 1 } }
        END { print crates " crates: licences " (bad ? "NOT all" : "all") " compatible"; exit bad || crates < 50 }'
if cargo deny --version > /dev/null 2>&1; then
    cargo deny check licenses sources advisories
elif cargo audit --version > /dev/null 2>&1; then
    cargo audit
else
    echo "skipped: advisories: neither cargo-deny nor cargo-audit is installed"
fi

#!/bin/sh
# Plays all property tests ROUNDS times, each time on new cases: packaging/properties.sh ROUNDS
set -eu
cd "$(dirname "$0")/.."
unset PROPTEST_RNG_SEED
files=$(grep -lr --include=*.rs --exclude-dir=target 'proptest!' .)
rooms=$(echo "$files" | cut -d / -f 2 | sort -u | sed 's/^/-p /')
suites=$(echo "$files" | sed -n 's,.*/tests/\(.*\)\.rs$,--test \1,p' | sort -u)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
round=0
while [ $round -lt "$1" ]; do
    round=$((round + 1))
    # shellcheck disable=SC2086  # lists of words
    ${CARGO:-cargo} test --quiet $rooms --lib $suites > "$log" 2>&1 || { cat "$log"; echo "properties: round $round failed"; exit 1; }
done
echo "properties: $round rounds of$(echo $suites | sed 's/--test//g') and unit tests held"

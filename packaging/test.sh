#!/bin/sh
# Runs all tests, fast ones first, and ends with their number and time by floor.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
summary=""
failed=0

# failures LOG: what it says of those that failed, wherever it stands; its end, if nothing there looks like one.
failures() {
    awk '
        /^failures:/ { section = 1 }
        /^test result:/ { section = 0 }
        /panicked at|^error/ { more = 20 }
        section || more-- > 0 { print; found = 1 }
        END { exit !found }' "$1" > "$work/failures" || tail -n 80 "$1" > "$work/failures"
    head -n 200 "$work/failures"
}

# run FOLDER ARGUMENTS...: cargo test; what it said, its exit status and its seconds are kept in the folder.
run() {
    mkdir -p "$1"
    begin=$(date +%s)
    status=0
    log=$1/log ended=$1/ended; shift
    ${lower:-} cargo test --no-fail-fast "$@" > "$log" 2>&1 || status=$?
    echo "$status $(($(date +%s) - begin))" > "$ended"
}

# tell NAME FOLDER: shows what was run there, and adds its counts to the summary.
tell() {
    printf '\n== %s\n' "$1"
    read -r status seconds < "$2/ended"
    grep -E '^test |^skipped|SEED=|^Error' "$2/log" || true
    passed=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$2/log")
    broken=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$2/log")
    skipped=$(grep -c '^skipped' "$2/log" || true)
    if [ "$status" -ne 0 ]; then
        failures "$2/log"
        failed=1
        [ "$broken" -gt 0 ] || broken=1
    fi
    summary="$summary$(printf '%-34s %4d passed, %d failed, %d skipped, %d s' "$1" "$passed" "$broken" "$skipped" "$seconds")
"
}

# floor NAME ARGUMENTS...: one after the other.
floor() {
    name=$1; shift
    run "$work/floor" "$@"
    tell "$name" "$work/floor"
}

tested=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || tested=""

cargo build --workspace
floor "rooms: unit, property, golden" --workspace --exclude suite
floor "tidy: map, docs, names" -p suite --test tidy
floor "plugin in a hostile host" -p suite --test spank_host
floor "doctor: each fault provoked" -p suite --test doctor
floor "any program, by CRIU" -p suite --test criu -- --test-threads=2 --nocapture
floor "stock Slurm, without us" -p suite --test baseline -- --test-threads=1 --nocapture
# The packages of what is built already; a release build is for make deb.
BUILT=${CARGO_TARGET_DIR:-target}/debug sh packaging/deb.sh
# These have machines or a Slurm of their own, and the floors beside them mostly wait, as they do themselves.
(
    run "$work/groups" -p suite --test groups -- --test-threads=1 --nocapture
    run "$work/loans" -p suite --test loans -- --test-threads=1 --nocapture
    lower="nice -n 19"
    run "$work/series" -p suite --test newer_series -- --test-threads=1 --nocapture
    run "$work/packages" -p suite --test packages -- --test-threads=1 --nocapture make_install lintian every_command a_protected a_host
) &
beside=$!
floor "steps across nodes, by CRIU" -p suite --test steps -- --test-threads=1 --nocapture
floor "survivors parked, their nodes lent" -p suite --test lend -- --test-threads=1 --nocapture
floor "cluster: real Slurm, dying nodes" -p suite --test cluster -- --test-threads=1 --nocapture
floor "the plan before the job" -p suite --test choice -- --test-threads=1 --nocapture
floor "calibration on a real Slurm" -p suite --test calibration -- --test-threads=1 --nocapture
floor "the user's page: syntax" -p suite --test user_page -- every_script_has
wait "$beside"
tell "groups that recover alone" "$work/groups"
tell "loans of idle nodes" "$work/loans"
tell "packages on Debian 12" "$work/packages"
tell "Slurm 24.11 and 26.05 in chroots" "$work/series"

printf '\nTests by floor\n%s' "$summary"
total=$(printf '%s' "$summary" | awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "passed,") n += $i } END { print n + 0 }')
bad=$(printf '%s' "$summary" | awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "failed,") n += $i } END { print n + 0 }')
printf '%d passed, %d failed\n' "$total" "$bad"
# For make release-check: this commit needs no second run.
if [ "$failed" -eq 0 ] && [ "$tested" = "$(git rev-parse HEAD)" ] && [ -z "$(git status --porcelain)" ]; then
    mkdir -p target && echo "$tested" > target/tested
fi
exit "$failed"

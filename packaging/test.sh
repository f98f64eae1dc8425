#!/bin/sh
# Runs all tests, fast ones first, and ends with their number and time by floor.
set -eu
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log" "$log.failures"' EXIT
summary=""
failed=0

# failures: what the log says of those that failed, wherever it stands; its end, if nothing there looks like one.
failures() {
    awk '
        /^failures:/ { section = 1 }
        /^test result:/ { section = 0 }
        /panicked at|^error/ { more = 20 }
        section || more-- > 0 { print; found = 1 }
        END { exit !found }' "$log" > "$log.failures" || tail -n 80 "$log" > "$log.failures"
    head -n 200 "$log.failures"
}

# floor NAME ARGUMENTS...: runs cargo test and adds its counts to the summary.
floor() {
    name=$1; shift
    printf '\n== %s\n' "$name"
    status=0
    begin=$(date +%s)
    cargo test --no-fail-fast "$@" > "$log" 2>&1 || status=$?
    grep -E '^test |^skipped|SEED=|^Error' "$log" || true
    passed=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$log")
    broken=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$log")
    skipped=$(grep -c '^skipped' "$log" || true)
    if [ "$status" -ne 0 ]; then
        failures
        failed=1
        [ "$broken" -gt 0 ] || broken=1
    fi
    summary="$summary$(printf '%-34s %4d passed, %d failed, %d skipped, %d s' "$name" "$passed" "$broken" "$skipped" \
        $(($(date +%s) - begin)))
"
}

cargo build --workspace
floor "rooms: unit, property, golden" --workspace --exclude suite
floor "tidy: map, docs, names" -p suite --test tidy
floor "plugin in a hostile host" -p suite --test spank_host
floor "doctor: each fault provoked" -p suite --test doctor
floor "any program, by CRIU" -p suite --test criu -- --test-threads=2 --nocapture
floor "stock Slurm, without us" -p suite --test baseline -- --test-threads=1 --nocapture
floor "cluster: real Slurm, dying nodes" -p suite --test cluster -- --test-threads=1 --nocapture
floor "steps across nodes, by CRIU" -p suite --test steps -- --test-threads=1 --nocapture
floor "groups that recover alone" -p suite --test groups -- --test-threads=1 --nocapture
floor "loans of idle nodes" -p suite --test loans -- --test-threads=1 --nocapture
floor "survivors parked, their nodes lent" -p suite --test lend -- --test-threads=1 --nocapture
floor "the plan before the job" -p suite --test choice -- --test-threads=1 --nocapture
floor "calibration on a real Slurm" -p suite --test calibration -- --test-threads=1 --nocapture
floor "the user's page: syntax" -p suite --test user_page -- every_script_has
# The packages of what is built already; a release build is for make deb.
BUILT=${CARGO_TARGET_DIR:-target}/debug sh packaging/deb.sh
floor "packages on Debian 12" -p suite --test packages -- --test-threads=1 --nocapture make_install lintian a_host
floor "Slurm 24.11 and 26.05 in chroots" -p suite --test newer_series -- --test-threads=1 --nocapture

printf '\nTests by floor\n%s' "$summary"
total=$(printf '%s' "$summary" | awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "passed,") n += $i } END { print n + 0 }')
bad=$(printf '%s' "$summary" | awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "failed,") n += $i } END { print n + 0 }')
printf '%d passed, %d failed\n' "$total" "$bad"
exit "$failed"

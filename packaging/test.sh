#!/bin/sh
# Runs all tests, fast ones first, and ends with their number and time by floor.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
summary=$work/summary.clusters

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

# floor NAME ARGUMENTS...: runs cargo test and adds its counts to the lane's summary.
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
        [ "$broken" -gt 0 ] || broken=1
    fi
    printf '%-34s %4d passed, %d failed, %d skipped, %d s\n' "$name" "$passed" "$broken" "$skipped" \
        $(($(date +%s) - begin)) >> "$summary"
}

# What needs none of this machine's Slurm, beside the clusters, which mostly wait; its output is kept for the end.
beside() (
    log=$work/beside.log
    summary=$work/summary.packages
    # The packages of what is built already; a release build is for make deb.
    BUILT=${CARGO_TARGET_DIR:-target}/debug sh packaging/deb.sh
    floor "packages on Debian 12" -p suite --test packages -- --test-threads=1 --nocapture make_install lintian a_host
    floor "Slurm 24.11 and 26.05 in chroots" -p suite --test newer_series -- --test-threads=1 --nocapture
)

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
beside > "$work/beside.out" 2>&1 & beside=$!
floor "loans of idle nodes" -p suite --test loans -- --test-threads=1 --nocapture
floor "survivors parked, their nodes lent" -p suite --test lend -- --test-threads=1 --nocapture
floor "the plan before the job" -p suite --test choice -- --test-threads=1 --nocapture
floor "calibration on a real Slurm" -p suite --test calibration -- --test-threads=1 --nocapture
floor "the user's page: syntax" -p suite --test user_page -- every_script_has
wait "$beside" || printf '%-34s    0 passed, 1 failed, 0 skipped, 0 s\n' "packages and newer series" >> "$summary"
cat "$work/beside.out"

printf '\nTests by floor\n'
cat "$work"/summary.* | tee "$work/all"
awk '{ for (i = 1; i < NF; i++) { if ($(i + 1) == "passed,") good += $i; if ($(i + 1) == "failed,") bad += $i } }
    END { printf "%d passed, %d failed\n", good, bad; exit bad > 0 }' "$work/all"

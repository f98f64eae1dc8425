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
        /panicked at|^[Ee]rror/ { more = 20 }
        section || more-- > 0 { print; found = 1 }
        END { exit !found }' "$1" > "$work/failures" || tail -n 80 "$1" > "$work/failures"
    head -n 200 "$work/failures"
}

# run FOLDER ARGUMENTS...: cargo test; what it said, its exit status and its seconds are kept in the folder.
run() {
    rm -rf "$1"
    mkdir -p "$1"
    begin=$(date +%s)
    status=0
    log=$1/log ended=$1/ended; shift
    ${lower:-} cargo test --no-fail-fast "$@" > "$log" 2>&1 || status=$?
    echo "$status $(($(date +%s) - begin))" > "$ended"
}

# What cargo is told to run a suite of `tests`. As a part of the whole, so that what it uses is what was built for all;
# without the rooms that have a test of the same name.
suite="--workspace --exclude driver --exclude planner --exclude policy --test"

# run_real FOLDER SUITE ARGUMENTS...: a suite on real clusters, whose daemons the machine beneath may hold up. Those that
# fail are tried once more, each alone; the first failure is shown and counted.
run_real() {
    folder=$1 real=$2; shift 2
    run "$folder" $suite "$real" -- --test-threads="${threads:-1}" --nocapture "$@"
    read -r status seconds < "$folder/ended"
    [ "$status" -ne 0 ] || return 0
    awk '/^failures:/ { listed = 1; next } /^test result:/ { listed = 0 } listed && NF == 1 { print $1 }' "$folder/log" |
        sort -u > "$folder/failed"
    [ -s "$folder/failed" ] && [ "$(wc -l < "$folder/failed")" -le 3 ] || return 0
    while read -r test; do
        run "$folder/again" $suite "$real" -- --test-threads=1 --nocapture --exact "$test" < /dev/null
        read -r status more < "$folder/again/ended"
        seconds=$((seconds + more))
        echo "$status" >> "$folder/statuses"
        [ "$status" -ne 0 ] || echo "$test" >> "$folder/second"
    done < "$folder/failed"
    echo "$(sort -rn "$folder/statuses" | head -n 1) $seconds" > "$folder/ended"
}

# tell NAME FOLDER: shows what was run there, and adds its counts to the summary.
tell() {
    printf '\n== %s\n' "$1"
    read -r status seconds < "$2/ended"
    second=0 try=""
    [ ! -e "$2/second" ] || { second=$(wc -l < "$2/second"); try="first try: "; }
    { grep -E '^test |^skipped|SEED=|^Error' "$2/log" || true; } | sed "s/^/$try/"
    passed=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$2/log")
    broken=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$2/log")
    skipped=$(grep -c '^skipped' "$2/log" || true)
    if [ "$status" -ne 0 ] || [ "$broken" -gt 0 ]; then
        failures "$2/log" | sed "s/^/$try/" > "$work/told"
        cat "$work/told"
        { printf '%s: ' "$1"; head -n 15 "$work/told"; } >> "$work/reasons"
    fi
    passed=$((passed + second)) broken=$((broken - second))
    if [ "$status" -ne 0 ]; then
        failed=1
        [ "$broken" -gt 0 ] || broken=1
    fi
    line=$(printf '%-34s %4d passed, %d failed, %d skipped, %d s' "$1" "$passed" "$broken" "$skipped" "$seconds")
    [ "$second" -eq 0 ] || line="$line, $second at the second try: $(tr '\n' ' ' < "$2/second")"
    summary="$summary$line
"
}

# floor NAME ARGUMENTS...: one after the other.
floor() {
    name=$1; shift
    run "$work/floor" "$@"
    tell "$name" "$work/floor"
}

# floor_real NAME SUITE ARGUMENTS...: likewise, on real clusters.
floor_real() {
    name=$1; shift
    run_real "$work/floor" "$@"
    tell "$name" "$work/floor"
}

# Properties are tried on the same cases at each run, so that a change is judged by what it changes; `make properties` draws new ones.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}

# What a test says of its failure names the place; the calls that led there only hide it.
export RUST_BACKTRACE=0

tested=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || tested=""

# All at once, with the features that programs and tests want together: one after the other, most would be compiled twice.
cargo build --workspace --lib --bins --tests
floor "rooms: unit, property, golden" --workspace --exclude suite
floor "tidy: map, docs, names" $suite tidy
floor "house: sizes, circles, errors" $suite house
floor "plugin in a hostile host" $suite spank_host
floor "doctor: each fault provoked" $suite doctor
# The packages of what is built already; a release build is for make deb.
BUILT=${CARGO_TARGET_DIR:-target}/debug sh packaging/deb.sh
# Four streams side by side: each suite has a Slurm of its own, and mostly waits.
(
    threads=2 run_real "$work/criu" criu
    run_real "$work/scr" scr
    run_real "$work/dmtcp" dmtcp
    run_real "$work/veloc" veloc
    run_real "$work/groups" groups
    run_real "$work/programs" programs
    run_real "$work/died" steps _died
    run_real "$work/steps" steps --skip _died
) &
engines=$!
(
    run_real "$work/lifecycle" lifecycle
    run_real "$work/baseline" baseline
    run_real "$work/mpi" mpi
) &
groups=$!
(
    run_real "$work/partitions" partitions
    run_real "$work/standby" standby
    run_real "$work/storage" storage
    run_real "$work/chaos" chaos
    run_real "$work/lend" lend
    lower="nice -n 19"
    run_real "$work/series" newer_series
    run_real "$work/packages" packages make_install lintian every_command a_protected a_host
) &
troubles=$!
floor_real "groups' calls beside plain srun" calls
floor_real "cluster: real Slurm, dying nodes" cluster
floor_real "attacks on the door and the books" attacks
floor_real "the plan before the job" choice
floor_real "calibration on a real Slurm" calibration
floor_real "loans of idle nodes" loans
floor_real "protected, or told that not" protection
floor "the user's pages, a shell to try" $suite user_page -- every_script_has every_program_of a_block_knows a_shell_to
wait "$engines"
tell "any program, by CRIU" "$work/criu"
tell "programs of the real SCR" "$work/scr"
tell "programs under the real DMTCP" "$work/dmtcp"
tell "programs of the real VELOC" "$work/veloc"
tell "groups that recover alone" "$work/groups"
tell "programs that nobody chose" "$work/programs"
tell "steps whose nodes die, by CRIU" "$work/died"
tell "steps across nodes, by CRIU" "$work/steps"
wait "$groups"
tell "a private Slurm whose nodes die" "$work/lifecycle"
tell "stock Slurm, without us" "$work/baseline"
tell "one MPI program over all groups" "$work/mpi"
wait "$troubles"
tell "power losses and partitions" "$work/partitions"
tell "a standby takes over" "$work/standby"
tell "runs on a storage that fails" "$work/storage"
tell "whatever breaks, at random" "$work/chaos"
tell "survivors parked, their nodes lent" "$work/lend"
tell "packages on Debian 12" "$work/packages"
tell "Slurm 24.11 and 26.05 in chroots" "$work/series"

printf '\nTests by floor\n%s' "$summary"
total=$(printf '%s' "$summary" | awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "passed,") n += $i } END { print n + 0 }')
bad=$(printf '%s' "$summary" | awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "failed,") n += $i } END { print n + 0 }')
# What failed is told again, where the end of a long log is read first.
[ ! -s "$work/reasons" ] || { printf '\nWhat failed\n'; head -n 80 "$work/reasons"; }
printf '%d passed, %d failed\n' "$total" "$bad"
# For make release-check: this commit needs no second run.
if [ "$failed" -eq 0 ] && [ "$tested" = "$(git rev-parse HEAD)" ] && [ -z "$(git status --porcelain)" ]; then
    mkdir -p target && echo "$tested" > target/tested
fi
exit "$failed"

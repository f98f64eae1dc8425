#!/bin/sh
# Fuzzes each target for SECONDS (default 600), from seeds that are files of this repository, and counts the runs.
# Any crash ends it with the input's path. Sanitizers need RUSTC_BOOTSTRAP on a stable toolchain.
set -eu
cd "$(dirname "$0")"
seconds=${SECONDS_EACH:-600}
command -v cargo-fuzz > /dev/null || cargo install cargo-fuzz
export RUSTC_BOOTSTRAP=1

seed() { mkdir -p "corpus/$1"; cp "$2" "corpus/$1/seed-$(basename "$2")"; }
seed configuration ../conf/joulepoint.toml
sed 's/^#\([a-z]\)/\1/' ../conf/joulepoint.toml > corpus/configuration/seed-all-keys
for file in ../slurm/tests/recorded/*/*.txt; do
    mkdir -p corpus/slurm
    cp "$file" "corpus/slurm/seed-$(basename "$(dirname "$file")")-$(basename "$file")"
done
mkdir -p corpus/trace corpus/options corpus/journal corpus/wire
head -n 20 ../tests/data/lanl/system-3.csv > corpus/trace/seed-lanl
printf 'time,node\n1.5,a\n7200,b\n' > corpus/trace/seed-plain
printf 'ft-energy=energy\nft-energy-runtime-bound=10%%\nft-energy-interval=1-02:03:04\nft-energy-messages=100:4K\n' \
    > corpus/options/seed
printf '0{"seq":1,"at_s":1.0,"event":"checkpoint_failed","reason":"x"}' > corpus/journal/seed
printf '\003{"held":[{"job":1,"restart_count":0}],"fence":[2]}' > corpus/wire/seed

cargo fuzz build -O --debug-assertions > build.log 2>&1 || { tail -n 40 build.log; exit 1; }
for target in options configuration journal wire trace slurm; do
    if ! cargo fuzz run -O --debug-assertions "$target" -- -max_total_time="$seconds" -max_len=8192 -rss_limit_mb=2048 \
        > "$target.log" 2>&1; then
        tail -n 40 "$target.log"
        echo "$target: a crash; its input is in fuzz/artifacts/$target"
        exit 1
    fi
    printf '%-14s %s\n' "$target" "$(grep '^Done' "$target.log")"
done

#!/bin/sh
# Tries the packages on every series of Slurm and writes what came of it into docs/testing/matrix.md.
set -eu
cd "$(dirname "$0")/.."
sh packaging/previous.sh || [ $? = 77 ]
sh packaging/deb.sh > /dev/null
rm -rf target/matrix
status=0
cargo test -p suite --test packages slurm_ -- --test-threads=1 --nocapture || status=$?

[ -d target/matrix ] || exit "$status"
table=target/matrix/matrix.md
{
    printf '# The packages on three series of Slurm\n\n'
    printf 'Made by `make matrix` (%s, packages of the %s build): each series on five hosts of its own Debian, a controller\n' \
        "$(date +%F)" "$(basename "$(cat target/deb/built)")"
    printf 'and four nodes that boot systemd and can lose power. `tests/tests/packages/steps.rs` says what each row is.\n\n'
    awk -F '\t' '
        FNR == 1 { columns++; split(FILENAME, path, "/"); head[columns] = path[3]; sub(/\.tsv$/, "", head[columns]) }
        columns == 1 { step[FNR] = $1; rows = FNR }
        { cell[FNR, columns] = $2 }
        END {
            printf "| |"; for (c = 1; c <= columns; c++) printf " Slurm %s |", head[c]
            printf "\n|---|"; for (c = 1; c <= columns; c++) printf "---|"
            print ""
            for (r = 1; r <= rows; r++) {
                printf "| %s |", step[r]; for (c = 1; c <= columns; c++) printf " %s |", cell[r, c]
                print ""
            }
        }' target/matrix/*.tsv
} > "$table"
cp "$table" docs/testing/matrix.md
cat docs/testing/matrix.md
exit "$status"

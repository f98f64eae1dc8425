#!/bin/bash
# A tree of processes joined by pipes; an orphan of it keeps a file of its own open: tree.sh STEPS.
(
    for i in $(seq "$1"); do
        echo "orphan $i"
        sleep 0.1
    done >orphan.log &
)
for i in $(seq "$1"); do
    echo "$i $((i * i))"
    sleep 0.1
done | while read -r n square; do
    printf '%s %s\n' "$n" "$square"
done | awk -v parent=$$ '{ sum += $2; print "line", $1, sum; fflush() }'
until [ "$(wc -l <orphan.log)" = "$1" ]; do sleep 0.1; done
echo "pid $([ -d /proc/$$ ] && echo kept)"
exit 5

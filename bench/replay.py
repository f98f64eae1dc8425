#!/usr/bin/env python3
"""The replay in plain Python, to set beside Joulepoint's: same semantics, one checkpoint at a time.

    python3 bench/replay.py tests/data/lanl/system-20.csv young ema hazard

Prints one JSON object per policy: what it spent (for energy, C = 600 s, ratio 3), and how long the replay took.
`cargo run --release -p xtask -- bench-simulator` runs both and compares.
"""

import bisect
import datetime
import json
import math
import sys
import time

CHECKPOINT_S = 600.0
RATIO = 3.0
DAY_S = 86_400.0


def read_gaps(path):
    epoch = datetime.datetime(1970, 1, 1)
    with open(path) as lines:
        column = next(lines).strip().split(",").index("failure_start")
        times = [datetime.datetime.fromisoformat(line.split(",")[column]) for line in lines]
    seconds = sorted({(t - epoch).total_seconds() for t in times})
    return [b - a for a, b in zip(seconds, seconds[1:])]


class Young:
    def __init__(self, gaps):
        self.mean_s = sum(gaps) / len(gaps)

    def estimate_s(self, age_s):
        return self.mean_s

    def observe(self, gap_s):
        pass


class Ema(Young):
    def observe(self, gap_s):
        self.mean_s = 0.2 * gap_s + 0.8 * self.mean_s


class Sma(Young):
    """Mean of the gaps that ended in the last 28 days, the newest always among them."""

    def __init__(self, gaps):
        super().__init__(gaps)
        self.now_s = 0.0
        self.ended = []

    def observe(self, gap_s):
        self.now_s += gap_s
        self.ended.append((self.now_s, gap_s))
        while len(self.ended) > 1 and self.now_s - self.ended[0][0] > 28 * DAY_S:
            self.ended.pop(0)
        self.mean_s = sum(gap for _, gap in self.ended) / len(self.ended)


class Hazard(Young):
    """Mean of g - t over the gaps g > t, for each whole minute t; the table knows all gaps."""

    def __init__(self, gaps):
        super().__init__(gaps)
        self.sorted = sorted(gaps)
        self.above = [0.0]
        for gap in reversed(self.sorted):
            self.above.append(self.above[-1] + gap)
        self.above.reverse()

    def estimate_s(self, age_s):
        minute_s = math.floor(age_s / 60.0 + 0.5) * 60.0
        if not self.sorted:
            return self.mean_s
        at = bisect.bisect_right(self.sorted, minute_s)
        longer = len(self.sorted) - at
        if longer == 0:
            return self.above[0] / len(self.sorted)
        return self.above[at] / longer - minute_s


class HazardDynamic(Hazard):
    """The same from the gaps that have ended so far."""

    def __init__(self, gaps):
        super().__init__(gaps)
        self.sorted, self.above = [], [0.0]

    def observe(self, gap_s):
        at = bisect.bisect_right(self.sorted, gap_s)
        self.sorted.insert(at, gap_s)
        self.above.insert(at, self.above[at])
        for i in range(at + 1):
            self.above[i] += gap_s


POLICIES = {"young": Young, "ema": Ema, "sma": Sma, "hazard": Hazard, "hazard-dynamic": HazardDynamic}


def replay(gaps, estimator):
    checkpoints = 0
    checkpoint_s = lost_s = 0.0
    for gap_s in gaps:
        age_s = 0.0
        while True:
            interval_s = math.sqrt(2.0 * CHECKPOINT_S * estimator.estimate_s(age_s) / RATIO)
            if age_s + interval_s + CHECKPOINT_S >= gap_s:
                break
            age_s += interval_s + CHECKPOINT_S
            checkpoints += 1
            checkpoint_s += CHECKPOINT_S
        left_s = gap_s - age_s
        part_s = max(0.0, left_s - interval_s)
        checkpoint_s += part_s
        lost_s += left_s - part_s
        estimator.observe(gap_s)
    return {"checkpoints": checkpoints, "checkpoint_s": checkpoint_s, "lost_s": lost_s}


def main():
    gaps = read_gaps(sys.argv[1])
    for name in sys.argv[2:]:
        start = time.perf_counter()
        outcome = replay(gaps, POLICIES[name](gaps))
        seconds = time.perf_counter() - start
        print(json.dumps({"policy": name, "failures": len(gaps), **outcome, "seconds": seconds}))


main()

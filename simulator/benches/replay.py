"""The straightforward form of the replay, to set beside the criterion benchmark: python3 benches/replay.py"""

import math
import random
import time


def replay(gaps, checkpoint_s, ratio):
    """Young's interval for energy on an exponential moving average, one checkpoint at a time."""
    mean_s = sum(gaps) / len(gaps)
    checkpoints = checkpoint_time = lost = 0
    for gap in gaps:
        interval = math.sqrt(2 * checkpoint_s * mean_s / ratio)
        age = 0.0
        while age + interval + checkpoint_s < gap:
            age += interval + checkpoint_s
            checkpoints += 1
            checkpoint_time += checkpoint_s
        left = gap - age
        part = max(0.0, left - interval)
        checkpoint_time += part
        lost += left - part
        mean_s = 0.2 * gap + 0.8 * mean_s
    return checkpoints + len(gaps)


random.seed(7)
scale = 50_000 / math.gamma(1 + 1 / 0.7)
gaps = [random.weibullvariate(scale, 0.7) for _ in range(20_000)]
start = time.perf_counter()
events = replay(gaps, 300.0, 3.0)
elapsed = time.perf_counter() - start
print(f"{events} events in {elapsed:.3f} s: {events / elapsed / 1e6:.2f} million per second")

#!/usr/bin/env python3
"""Counts through a chain of hashes, checkpoints on SIGUSR1, and notes with every step who is writing.

A second instance of a rank that writes beside the first shows in the rank's file `writers.R`: each line names who wrote
it, and the lines of one writer must not be interleaved with those of another.
"""
import argparse
import hashlib
import json
import os
import signal
import time

parser = argparse.ArgumentParser()
parser.add_argument("--dir", default=".")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--step-ms", type=float, default=50.0)
options = parser.parse_args()
rank = os.environ.get("SLURM_PROCID", "0")


def path(name):
    return os.path.join(options.dir, f"{name}.{rank}")


step, chain = 0, "0" * 64
try:
    with open(path("state"), encoding="ascii") as saved:
        step, chain = json.load(saved)
except FileNotFoundError:
    pass


def save(_signal=None, _frame=None):
    with open(path("state.new"), "w", encoding="ascii") as new:
        json.dump([step, chain], new)
        new.flush()
        os.fsync(new.fileno())
    os.rename(path("state.new"), path("state"))


signal.signal(signal.SIGUSR1, save)
variables = ("SLURMD_NODENAME", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")
me = ".".join([os.environ.get(name, "0") for name in variables] + [str(os.getpid())])
writers = os.open(path("writers"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
while step < options.steps:
    time.sleep(options.step_ms / 1000)
    following = hashlib.sha256(chain.encode("ascii")).hexdigest()
    step, chain = step + 1, following
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(writers, f"{now:.3f} {me} {step}\n".encode("ascii"))
# Python takes its handlers back as it ends, and a signal that comes then would kill it.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
with open(path("result"), "w", encoding="ascii") as result:
    result.write(f"{step} {chain}\n")

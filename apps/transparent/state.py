"""A Python program with threads, shared memory, a temporary file and a log of its own: state.py STEPS."""

import os
import queue
import sys
import tempfile
import threading
import time
from multiprocessing import shared_memory

steps = int(sys.argv[1])
shared = shared_memory.SharedMemory(create=True, size=8 * steps)
scratch = tempfile.TemporaryFile()
named = tempfile.NamedTemporaryFile(prefix="state-", dir=os.environ.get("TMPDIR"))
log = open("state.log", "w", buffering=1)
work, done = queue.Queue(), queue.Queue()


def square():
    while (n := work.get()) is not None:
        done.put((n, n * n))


threads = [threading.Thread(target=square) for _ in range(3)]
for thread in threads:
    thread.start()
total = 0
for step in range(1, steps + 1):
    for n in range(step):
        work.put(n)
    total += sum(done.get()[1] for _ in range(step))
    shared.buf[8 * (step - 1) : 8 * step] = total.to_bytes(8, "little")
    scratch.write(f"{total}\n".encode())
    named.write(f"{total}\n".encode())
    named.flush()
    log.write(f"{step} {total}\n")
    print("step", step, total, flush=True)
    time.sleep(0.1)
for _ in threads:
    work.put(None)
for thread in threads:
    thread.join()
scratch.seek(0)
named.seek(0)
a, b = scratch.read(), named.read()
mine = b"".join(b"%d\n" % int.from_bytes(shared.buf[8 * i : 8 * i + 8], "little") for i in range(steps))
print("same" if a == b == mine else "differs", os.path.exists(named.name))
shared.close()
shared.unlink()

"""Writing and reading back a trace in each format: events a second, median and spread.

Beside ours: the peer, Python that formats a line at a time, and the limit, the same bytes written
to the same disk as one piece.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pyallocx as px

NAMES = ("a.txt", "a.txt.gz", "a.zip", "a.csv", "a.csv.gz", "a.parquet", "a.h", "a.npz")
REPEATS = 5


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rate(events: int, times: list[float]) -> str:
    rates = sorted(events / t / 1e6 for t in times)
    return f"{statistics.median(rates):6.2f} ({rates[0]:.2f} to {rates[-1]:.2f})"


def lines_in_python(trace: px.Trace, path: Path) -> None:
    """The peer: AOSP text by a loop, with the object's number as its address."""
    columns = zip(trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True)
    with path.open("w") as file:
        for op, thing, size in columns:
            address = 32 * thing + 16
            if op == px.OP_ALLOC:
                file.write(f"1: malloc {address:#x} {size}\n")
            elif op == px.OP_FREE:
                file.write(f"1: free {address:#x}\n")
            else:
                file.write(f"1: realloc {address:#x} {address:#x} {size}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    events = parser.parse_args().events
    made = px.synthesize(events, seed=1, threads=4)
    times = np.arange(events, dtype=np.uint64) * 137
    trace = px.Trace(
        made.op, made.object, made.size_bytes, thread=made.thread, time_ns=times, progress=False
    )
    print(f"{events:,} events; million events a second, median (least to most) of {REPEATS}\n")
    print(f"{'file':12}{'written':>24}{'the disk alone':>24}{'read':>24}{'bytes an event':>16}")
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            path, copy = Path(folder, name), Path(folder, "copy")
            written, limit, read = [], [], []
            for _ in range(REPEATS):
                written.append(seconds(lambda path=path: px.write(trace, path, progress=False)))
                whole = path.read_bytes()
                limit.append(seconds(lambda copy=copy, whole=whole: copy.write_bytes(whole)))
                if not name.endswith(".h"):
                    read.append(seconds(lambda path=path: px.load(path, progress=False)))
            back = rate(events, read) if read else "-"
            print(
                f"{name:12}{rate(events, written):>24}{rate(events, limit):>24}{back:>24}"
                f"{len(whole) / events:>16.2f}"
            )
        peer = [seconds(lambda: lines_in_python(trace, Path(folder, "p"))) for _ in range(3)]
    print(f"\na line at a time in Python, without threads and times: {rate(events, peer)}")


if __name__ == "__main__":
    main()

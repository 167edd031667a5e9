"""Ours, the peer and the limit in one run: ratios, medians and spread.

``python benchmarks/run.py [arena] [replay] [code] [lookup] [fit] [--events N]
[--shared DIR]``; without a name all of them. Needs a C compiler. Peers that are not installed are
left out and named.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import pyallocx as px
from pyallocx import _lookupbench, cli_sizes
from pyallocx import code as code_heap
from pyallocx.arena import PARAMETERS, POLICIES, _start

HERE = Path(__file__).resolve().parent
CORE = HERE.parent / "csrc" / "core"
PEERS = {
    "glibc": "",
    "jemalloc": "libjemalloc.so.2",
    "mimalloc": "libmimalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
}
REPETITIONS = 7
CUTS = [0, 16, 64, 256, 1024, 2048, 4096, 2**64 - 1]


def compile_c(target: Path, *sources: Path, flags: tuple[str, ...] = ()) -> None:
    command = ["cc", "-std=c11", "-O2", *flags, "-o", str(target), *map(str, sources), "-lm"]
    subprocess.run(command, check=True)


def spread(values: list[float]) -> str:
    """Median, and the range of the middle half."""
    low, _, high = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):8.2f}  [{low:.2f} .. {high:.2f}]"


def preloadable(library: str) -> bool:
    """Tell whether the dynamic linker finds a library."""
    if not library:
        return True
    tried = subprocess.run(
        [sys.executable, "-c", ""],
        env=os.environ | {"LD_PRELOAD": library},
        capture_output=True,
        text=True,
        check=False,
    )
    return library not in tried.stderr


def arena(temp: Path) -> None:
    """Pairs of alloc and free against malloc and free of the same sizes."""
    program = temp / "arena_pair"
    compile_c(program, HERE / "arena_pair.c", *sorted(CORE.glob("*.c")))
    print("an alloc+free pair, no poison: malloc's time / the arena's (the more the better)")
    print(f"{'peer':9} {'pattern':8} {'malloc ns':>9} {'arena ns':>9} {'by list':>8} {'by key':>8}")
    for name, library in PEERS.items():
        if not preloadable(library):
            print(f"{name:9} not installed")
            continue
        runs: dict[str, list[list[float]]] = {}
        for _ in range(3):
            output = subprocess.run(
                [program],
                env=os.environ | ({"LD_PRELOAD": library} if library else {}),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for line in output.splitlines():
                pattern, *ns = line.split()
                runs.setdefault(pattern, []).append([float(x) for x in ns])
        for pattern, rows in runs.items():
            peer, by_list, by_key = (statistics.median(x) for x in zip(*rows, strict=True))
            print(
                f"{name:9} {pattern:8} {peer:9.2f} {by_list:9.2f} "
                f"{peer / by_list:7.2f}x {peer / by_key:7.2f}x"
            )
    print()


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def scanner(temp: Path) -> Callable[..., int]:
    """The function that only reads the columns of a trace."""
    library = temp / "scan.so"
    compile_c(library, HERE / "scan.c", flags=("-shared", "-fPIC"))
    scan: Callable[..., int] = ctypes.CDLL(str(library)).scan
    scan.restype = ctypes.c_uint64
    scan.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t]
    return scan


def replay_once(trace: px.Trace, thresholds: list[int] | None, policy: str = "byte_cut") -> None:
    values = {p.name: p.default for p in PARAMETERS} | {"policy": policy}
    _start(trace, values, thresholds).step(len(trace))


def replay(temp: Path, events: int, shared: Path | None) -> None:
    """Events per second, the cost of the whole curve, and the limit."""
    scan = scanner(temp)
    traces = {
        f"synthetic {name}": px.synthesize(events, seed=1, lifetimes=name)
        for name in ("exponential", "stack", "phases")
    }
    path = shared / "traces" / "aosp" / "surfaceflinger.zip" if shared else None
    if path and path.exists():
        traces["surfaceflinger"] = px.load(path)
    for name, trace in traces.items():
        pointers = [column.ctypes.data for column in (trace.op, trace.object, trace.size_bytes)]
        contestants: dict[str, Callable[[], object]] = {
            "scan of the columns (limit)": partial(scan, *pointers, len(trace)),
            "one threshold": partial(replay_once, trace, [0, 2048]),
            f"{len(CUTS)} thresholds, one pass": partial(replay_once, trace, CUTS),
        }
        for policy in POLICIES:
            contestants[f"arena itself, {policy}"] = partial(replay_once, trace, None, policy)
        times: dict[str, list[float]] = {label: [] for label in contestants}
        for _ in range(REPETITIONS):
            for label, contestant in contestants.items():
                times[label].append(timed(contestant))
        single = times["one threshold"]
        print(f"{name}, {len(trace):,} events: million events per second; time / one threshold")
        for label, taken in times.items():
            rates = [len(trace) / t / 1e6 for t in taken]
            ratio = statistics.median(t / s for t, s in zip(taken, single, strict=True))
            print(f"  {label:28} {spread(rates)}  {ratio:6.2f}x")
        print()


def code_once(trace: px.Trace, policy: str, **params: object) -> None:
    values = {p.name: p.default for p in code_heap.PARAMETERS} | {"policy": policy} | params
    replay = code_heap._start(trace, values)
    while replay.step(len(trace)):  # a step ends by the work done
        pass


def code_pair(temp: Path) -> None:
    """Pairs of alloc and free of the live code heap against asmjit's JitAllocator."""
    shim = temp / "code_pair_asmjit.o"
    built = subprocess.run(
        ["c++", "-O2", "-c", HERE / "code_pair_asmjit.cpp", "-o", shim],
        capture_output=True,
        check=False,
    )
    if built.returncode:
        print("asmjit: not installed, or no C++ compiler\n")
        return
    program = temp / "code_pair"
    objects = [HERE / "code_pair.c", shim, *sorted(CORE.glob("*.c"))]
    command = ["cc", "-std=c11", "-O2", "-o", program, *objects, "-lasmjit", "-lstdc++", "-lm"]
    subprocess.run(command, check=True)
    runs: dict[str, list[tuple[float, float]]] = {}
    for _ in range(3):
        output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        for line in output.splitlines():
            pattern, theirs, ours = line.split()
            runs.setdefault(pattern, []).append((float(theirs), float(ours)))
    print(
        "an alloc+free pair of code memory: asmjit's time / the code heap's (the more the better)"
    )
    for pattern, rows in runs.items():
        theirs, ours = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"  {pattern:8} {theirs:8.1f} ns {ours:8.1f} ns {theirs / ours:6.2f}x")
    print()


def code_free(temp: Path) -> None:
    """What a free costs among more and more free blocks, and how many it looks at."""
    program = temp / "code_free"
    compile_c(program, HERE / "code_free.c", *sorted(CORE.glob("*.c")))
    # Where a free searches, more free blocks are not to be waited for.
    most = {"segregated": 1_000_000, "byte_limit": 10_000}
    print("nanoseconds per free, and list_scan_steps per free, by free blocks")
    for policy, order in itertools.product(most, ("address", "random")):
        print(f"  {policy + ', ' + order:20}", end="")
        for blocks in (1_000, 10_000, 100_000, 1_000_000):
            if blocks <= most[policy]:
                command = [program, policy, str(blocks), order]
                output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                ns, steps = map(float, output.split())
                print(f"  {ns:10.1f} ({steps:.0f})", end="", flush=True)
        print()
    print()


def code(temp: Path) -> None:
    """Events per second under each policy of the code heap, and the limit.

    The second table is the cost of a free list's length: methods of which half are unloaded again,
    so that free blocks grow with the trace. What searches a list slows down with it.
    """
    code_pair(temp)
    code_free(temp)
    scan = scanner(temp)
    slow = ("scan", "bitmap", "pack")
    trace = px.synthesize_code(33_333, seed=1)
    pointers = [column.ctypes.data for column in (trace.op, trace.object, trace.size_bytes)]
    contestants: dict[str, Callable[[], object]] = {
        "scan of the columns (limit)": partial(scan, *pointers, len(trace))
    }
    for policy in code_heap.CODE_POLICIES:
        contestants[policy] = partial(code_once, trace, policy, byte_limit=4096)
    for wx in ("dual", "per_thread"):
        contestants[f"segregated, {wx}"] = partial(code_once, trace, "segregated", wx=wx)
    times: dict[str, list[float]] = {label: [] for label in contestants}
    for repetition in range(3 * REPETITIONS):
        for label, contestant in contestants.items():
            if label not in slow or repetition % REPETITIONS == 0:
                times[label].append(timed(contestant))
    print(f"code, {len(trace):,} events: million events per second; time / segregated")
    for label, taken in times.items():
        rates = [len(trace) / t / 1e6 for t in taken]
        step = len(times["segregated"]) // len(taken)
        pairs = zip(taken, times["segregated"][::step], strict=True)
        print(f"  {label:28} {spread(rates)}  {statistics.median(t / s for t, s in pairs):6.2f}x")
    print("\nnanoseconds per event by events; methods half of which are unloaded")
    sizes = (3_000, 30_000, 300_000)
    print(f"  {'':16}" + "".join(f"{size:>10,}" for size in sizes))
    traces = [px.synthesize_code(size // 3, seed=1) for size in sizes]
    for policy in ("segregated", "byte_limit", "whole_block", "first_fit"):
        row = [
            statistics.median(timed(partial(code_once, t, policy, byte_limit=4096)) for _ in "123")
            / len(t)
            for t in (traces[:2] if policy == "first_fit" else traces)
        ]
        print(f"  {policy:16}" + "".join(f"{1e9 * seconds:10.1f}" for seconds in row))
    print()


def fit_once(profile: Any, classes: int, **options: Any) -> None:
    px.fit(profile, classes, header_bytes=16, largest_bytes=65552, **options)


def fit() -> None:
    """The exact solve against sorting, greedy, and the whole curve, on 50,000 distinct sizes."""
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(65536)[:50_000].astype(np.uint64)
    sizes = np.sort(shuffled)
    # Small sizes are frequent, as in programs; the factor keeps counts apart.
    counts = np.floor(3e6 / (sizes + 10.0) * rng.random(len(sizes))) + 1
    profile = (sizes, counts)
    whole = px.fit(profile, 256, bits=7, header_bytes=16, largest_bytes=65552)
    contestants: dict[str, Callable[[], object]] = {
        "np.sort of the sizes, shuffled": partial(np.sort, shuffled),
        "fit, 32 classes, 7 bits": partial(fit_once, profile, 32, bits=7),
        "  divide and conquer": partial(fit_once, profile, 32, bits=7, method="divide"),
        "  quadratic": partial(fit_once, profile, 32, bits=7, method="quadratic"),
        "  any multiple of 16": partial(fit_once, profile, 32),
        "fit, 256 classes, 7 bits": partial(fit_once, profile, 256, bits=7),
        "curve to 256 classes, 7 bits": partial(whole.curve, 256),
    }
    times: dict[str, list[float]] = {label: [] for label in contestants}
    for _ in range(5 * REPETITIONS):
        for label, contestant in contestants.items():
            times[label].append(timed(contestant))
    greedy = [timed(partial(fit_once, profile, 32, bits=7, method="greedy")) for _ in "123"]
    times["greedy, 32 classes, 7 bits"] = greedy
    base = times["np.sort of the sizes, shuffled"]
    print("fit, 50,000 distinct sizes: milliseconds; time / np.sort")
    for label, taken in times.items():
        ratio = statistics.median(taken) / statistics.median(base)
        print(f"  {label:32} {spread([1e3 * t for t in taken])}  {ratio:9.2f}x")
    median = {label: statistics.median(taken) for label, taken in times.items()}
    solve, many = median["fit, 32 classes, 7 bits"], median["fit, 256 classes, 7 bits"]
    curve = median["curve to 256 classes, 7 bits"]
    print(f"  greedy / fit {median['greedy, 32 classes, 7 bits'] / solve:.0f}x")
    print(f"  curve to 256 / fit of 256 {curve / many:.2f}x\n")


ARRAYS = ("uint16", "uint8", "uint32", "int32", "uint64", "int64")


def lookup_arrays(items: int) -> None:
    """Compare an array through `class_of` with np.searchsorted and with a copy of the array."""
    flat = _lookupbench.android64().as_kind("flat")
    drawn = _lookupbench.sizes_to_look_up(flat.largest, items)
    runs: list[tuple[str, dict[str, list[float]]]] = []
    for dtype in ARRAYS:
        # Few of the sizes fit a byte: what it can hold of them is drawn as well.
        sizes = drawn.astype(dtype) if dtype == "uint8" else np.minimum(drawn, 65535).astype(dtype)
        same, ids = np.empty_like(sizes), np.empty(items, np.uint8)
        narrow = np.iinfo(dtype).max < flat.largest
        classes = flat.classes[flat.classes <= np.iinfo(dtype).max].astype(dtype)
        contestants: dict[str, Callable[[], object]] = {
            "copy": partial(np.copyto, same, sizes),
            "to the same dtype": partial(flat.class_of, sizes, same),
            "to uint8": partial(flat.class_of, sizes, ids),
            "in place": partial(flat.class_of, same, same),
            "round, same dtype": partial(flat.round, sizes, same),
        }
        if narrow:
            del contestants["round, same dtype"]
        times: dict[str, list[float]] = {label: [] for label in contestants}
        times["np.searchsorted"] = []
        for repetition in range(3 * REPETITIONS):
            for label, contestant in contestants.items():
                times[label].append(timed(contestant))
            if repetition < 3:  # it takes a hundred times as long
                times["np.searchsorted"].append(timed(partial(np.searchsorted, classes, sizes)))
        runs.append((dtype, times))
    print(f"class_of of {items:,} random sizes, 32 classes, flat; time / copy; searchsorted / time")
    for dtype, times in runs:
        copy = statistics.median(times["copy"])
        search = statistics.median(times["np.searchsorted"])
        for label, taken in times.items():
            median = statistics.median(taken)
            print(
                f"  {dtype:7} {label:18} {1e9 * median / items:7.2f} ns "
                f"{median / copy:7.2f}x {search / median:7.1f}x"
            )
    print()


def lookup(items: int = 10_000_000) -> None:
    """Print the cost of a lookup by kind of map in C, then over arrays."""
    cli_sizes._print_bench(_lookupbench.measure(_lookupbench.android64(), seconds=4))
    print()
    lookup_arrays(items)


def sweep_of_100(threads: int) -> float:
    """Seconds of a sweep of 100 cells; they take 2 to 120 ms each."""
    trace = px.synthesize_code(33_333, seed=1)
    with ThreadPoolExecutor(threads) as executor:
        return timed(
            partial(
                px.sweep,
                px.CodeHeap,
                trace,
                executor=executor,
                progress=False,
                policy=["byte_limit", "whole_block", "segregated", "buckets", "bump"],
                chunk_bytes=[4096 << doublings for doublings in range(10)],
                keep_bytes=[0, math.inf],
                byte_limit=4096,
            )
        )


def sweep_when_asked(pipe: Connection) -> None:
    while pipe.recv():
        pipe.send(sweep_of_100(1))


def code_sweep() -> None:
    """Sweep on all cores, against processes of which each sweeps on its own: the machine's limit.

    Two cores may share caches, memory, a clock, or be one core with two threads; and others may
    use them. Processes that share nothing of ours feel all that, too.
    """
    cores = os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    pipes = []
    for _ in range(cores):
        ours, theirs = context.Pipe()
        context.Process(target=sweep_when_asked, args=(theirs,), daemon=True).start()
        pipes.append(ours)

    def together(count: int) -> float:
        for pipe in pipes[:count]:
            pipe.send(True)
        return max([pipe.recv() for pipe in pipes[:count]])

    together(cores)
    times: list[tuple[float, float, float, float]] = []
    for _ in range(REPETITIONS):
        alone = together(1)
        times.append((alone, together(cores) / cores, sweep_of_100(1), sweep_of_100(cores)))
    for pipe in pipes:
        pipe.send(False)
    print(f"a sweep of 100 cells of 100,000 events on {cores} cores: seconds, and how much faster")
    one, many = ([row[i] for row in times] for i in (2, 3))
    print(f"  one thread                     {spread(one)}")
    ratio = spread([a / b for a, b in zip(one, many, strict=True)])
    print(f"  {cores:3} threads                    {spread(many)}  {ratio} x")
    limit = [row[0] / row[1] for row in times]
    print(f"  {cores:3} processes, each all (limit)                            {spread(limit)} x")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="arena|replay|code|lookup|fit")
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--shared", type=Path, help="directory of the real traces")
    options = parser.parse_args()
    what = options.what or ["arena", "replay", "code", "lookup", "fit"]
    with tempfile.TemporaryDirectory() as name:
        if "arena" in what:
            arena(Path(name))
        if "replay" in what:
            replay(Path(name), options.events, options.shared)
        if "code" in what:
            code(Path(name))
            code_sweep()
        if "lookup" in what:
            lookup()
        if "fit" in what:
            fit()


if __name__ == "__main__":
    main()

"""What a lookup costs in C, by kind of map: the measurements of ``pyallocx lookup-bench``."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pyallocx._progress import progress_bar
from pyallocx.sizemap import MAP_KINDS, SizeMap

SIZES = 1 << 20
ORDERS = ("random", "sorted", "chain")
_BASE = "table"

# scudo's table for 64-bit Android from LLVM 14 on.
ANDROID64 = (
    0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xB0, 0xC0, 0xE0, 0x120, 0x160, 0x1C0, 0x250, 0x320,
    0x450, 0x670, 0x830, 0xA10, 0xC30, 0x1010, 0x1210, 0x1BD0, 0x2210, 0x2D90, 0x3790, 0x4010,
    0x4810, 0x5A10, 0x7310, 0x8210, 0x10010,
)  # fmt: skip


def android64() -> SizeMap:
    """Return the map that is measured where none is named."""
    return SizeMap(
        ANDROID64, kind="table", delta_bytes=16, header_bytes=16, align_bytes=16, name="android64"
    )


@dataclass
class Contestant:
    """A map, and how long its lookups took: nanoseconds, one number per repetition."""

    map: SizeMap
    note: str = ""
    ns: dict[str, list[float]] = field(default_factory=lambda: {order: [] for order in ORDERS})


def contestants(sizes: SizeMap) -> tuple[list[Contestant], dict[str, str]]:
    """Return a map of each kind, and why there is none of the others.

    Where the classes follow no fixed rule, the fixed map is scudo's default one up to the same
    size: the cost of its arithmetic does not depend on the classes.
    """
    made, missing = [], {}
    for kind in MAP_KINDS:
        try:
            made.append(Contestant(sizes.as_kind(kind)))
        except ValueError as exc:
            if kind == "fixed":
                top = max(8, (sizes.largest - 1).bit_length())
                made.append(Contestant(SizeMap.fixed(3, 5, 8, min(top, 63)), "classes of its own"))
            else:
                missing[kind] = str(exc)
    return made, missing


def sizes_to_look_up(largest: int, count: int = SIZES) -> npt.NDArray[np.uint32]:
    """Return sizes that are as often in each doubling, in random order; the same every time."""
    random = np.random.default_rng(1)
    most = min(largest, 2**32 - 1)
    drawn = np.exp(random.random(count) * np.log(most + 1.0))
    return np.array(np.minimum(drawn, most), dtype=np.uint32)


def measure(
    sizes: SizeMap,
    *,
    up_to: int | None = None,
    seconds: float = 5.0,
    least: int = 7,
    progress: bool | None = False,
) -> dict[str, Any]:
    """Measure every kind of a map, one after the other, again and again.

    Parameters
    ----------
    sizes : SizeMap
        Whose classes are looked up.
    up_to : int, optional
        The largest size that is looked up, at most the largest class; by default the largest class.
    seconds : float
        After which no repetition begins, when there are `least`.
    least : int
        The fewest repetitions.
    progress : bool or None
        As `progress_bar`.

    Returns
    -------
    dict
        What ``pyallocx lookup-bench --json`` prints.
    """
    made, missing = contestants(sizes)
    largest = sizes.largest if up_to is None else up_to
    if not 1 <= largest <= sizes.largest:
        raise ValueError(f"must be from 1 to the largest class, {sizes.largest}, got {largest}")
    random = sizes_to_look_up(largest)
    inputs = {"random": random, "sorted": np.sort(random), "chain": random}
    bar = progress_bar(round(10 * seconds), "measuring", " steps", wanted=progress, long=True)
    started = time.perf_counter()
    repetitions = shown = 0
    try:
        while repetitions < least or time.perf_counter() - started < seconds:
            for one in made:
                for order, values in inputs.items():
                    # Time on the core: where others want it, too, a long measurement is
                    # interrupted and a short one is not, and their ratio would be the scheduler's.
                    begin = time.thread_time()
                    one.map._core.measure(values, order == "chain")
                    one.ns[order].append((time.thread_time() - begin) / len(values) * 1e9)
            repetitions += 1
            now = min(round(10 * (time.perf_counter() - started)), round(10 * seconds))
            bar.update(now - shown)
            shown = now
    finally:
        bar.close()
    base = next((one for one in made if one.map.kind == _BASE), None)
    return {
        "name": sizes.name,
        "classes": len(sizes),
        "largest_bytes": sizes.largest,
        "up_to_bytes": largest,
        "sizes": len(random),
        "repetitions": repetitions,
        "kinds": [_row(one, base) for one in made],
        "missing": missing,
    }


def _row(one: Contestant, base: Contestant | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": one.map.kind,
        "classes": len(one.map),
        "memory_bytes": one.map.memory_bytes,
        "note": one.note,
    }
    for order in ORDERS:
        row[f"{order}_ns"] = statistics.median(one.ns[order])
    for order in ORDERS:
        # Of each repetition by itself: what else the machine does slows both.
        ratios = zip(one.ns[order], base.ns[order], strict=True) if base else ()
        row[f"{order}_ratio"] = statistics.median(a / b for a, b in ratios) if base else None
    return row

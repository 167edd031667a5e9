"""A system and a trace that replay nothing; importable, so that other processes find them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from pyallocx.sweep import Parameter
from pyallocx.units import parse_bytes, parse_count


@dataclass
class FakeTrace:
    events: int = 1000
    metadata: dict = field(
        default_factory=lambda: {"program": "git", "command": "git log", "file": "git.npz"}
    )

    def __len__(self):
        return self.events

    def summary(self):
        return {
            "events": self.events, "allocs": 600, "frees": 400, "reallocs": 0, "destroys": 0,
            "objects": 600, "threads": 1, "arenas": 2, "keys": None, "distinct_sizes": 7,
            "largest_size_bytes": 123456, "peak_live_bytes": 1 << 20, "peak_live_objects": 200,
            "live_bytes_end": 12, "live_objects_end": 200, "allocated_bytes": 9876543,
            "cross_thread_frees": 0, "duration_ns": 2_500_000_000,
        }  # fmt: skip


def check_retain(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"must be bytes, 0 to inf, not {type(value).__name__}")
    if not value >= 0:
        raise ValueError("must be 0 to inf bytes")
    return value if math.isinf(value) else int(value)


def fake_row(cell):
    retain = min(cell["retain_bytes"], 8192)
    return {
        "pops": 1000,
        "list_frees": 0 if math.isinf(cell["retain_bytes"]) else int(4000 / (1 + retain)),
        "overhead_bytes": 100 + 3 * retain,
        "histogram": {16: 5, 32: 2},
    }


@dataclass(frozen=True)
class FakeSystem:
    """Counters by formula; ``policy`` names the ways to go wrong."""

    name: str = "fake"
    seconds: float = 0.0
    parameters = (
        Parameter("retain_bytes", 2048, parse_bytes, "bytes kept", check=check_retain),
        Parameter("chunk_count", 4, parse_count, "chunks, 100 % whole"),
        Parameter(
            "policy", "cut", str, "what happens at empty",
            choices=("cut", "keep", "bad_cell", "bad_group", "short", "no_column"),
        ),
    )  # fmt: skip
    columns = ("pops", "list_frees", "overhead_bytes", "histogram")
    default_grid = {"retain_bytes": [0, 64, 2048, math.inf]}  # noqa: RUF012 - never changed
    x = "overhead_bytes"
    y = "list_frees"
    landmarks = (({"retain_bytes": 2048, "policy": "cut"}, "Firefox"),)

    def group(self, cells):
        by_policy = {}
        for index, cell in enumerate(cells):
            by_policy.setdefault(cell["policy"], []).append(index)
        return list(by_policy.values())

    def run(self, trace, cells, control):
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            control.check()
            time.sleep(0.01)
        control.advance(len(trace))
        policy = cells[0]["policy"]
        if policy == "bad_group":
            raise OverflowError("too\nmuch")
        rows = [fake_row(cell) for cell in cells]
        if policy == "short":
            return rows[:-1]
        if policy == "no_column":
            rows[0].pop("pops")
        if policy == "bad_cell":
            rows[0] = MemoryError("no room")
        return rows


class Fake:
    __sweep__ = FakeSystem()


class SlowFake:
    __sweep__ = FakeSystem(seconds=30)

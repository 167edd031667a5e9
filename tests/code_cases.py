"""What the tests of code traces share: how they look at a trace, and jitdumps made by hand."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyallocx as px

A, F = px.OP_ALLOC, px.OP_FREE


def load(tmp_path: Path, data: str | bytes, **options: Any) -> px.Trace:
    path = tmp_path / "code"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return px.load(path, **options)


def shape(trace: px.Trace) -> list[tuple[str, int, int]]:
    """Events as (op, object, size)."""
    return [
        ("AF"[op], object, size)
        for op, object, size in zip(
            trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True
        )
    ]


def kinds(trace: px.Trace) -> list[str]:
    """Return the name of the key of each alloc."""
    assert trace.key is not None
    return [trace.metadata["key_names"][key] for key in trace.key[trace.op == A].tolist()]


def inferred(trace: px.Trace) -> dict[str, int]:
    found: dict[str, int] = trace.metadata["obtained"]["frees"]["inferred"]
    return found


def times(trace: px.Trace) -> list[int]:
    assert trace.time_ns is not None
    return trace.time_ns.tolist()


def header(order: str = "<", *, version: int = 1, size: int = 40, flags: int = 0) -> bytes:
    return struct.pack(
        f"{order}IIIIIIQQ", 0x4A695444, version, size, 62, 0xDEADBEEF, 7, 5, flags
    ).ljust(size, b"x")


def record(order: str, id: int, time: int, body: bytes) -> bytes:
    return struct.pack(f"{order}IIQ", id, 16 + len(body), time) + body


def loaded(order: str, time: int, address: int, size: int, name: bytes = b"JS:^f") -> bytes:
    body = struct.pack(f"{order}IIQQQQ", 7, 7, address, address, size, 0)
    return record(order, 0, time, body + name + b"\0" + b"\xcc" * size)


def moved(order: str, time: int, old: int, new: int, size: int) -> bytes:
    body = struct.pack(f"{order}IIQQQQQ", 7, 7, new, old, new, size, 0)
    return record(order, 1, time, body)


def a_dump(order: str = "<", **options: Any) -> bytes:
    return b"".join(
        [
            header(order, **options),
            record(order, 4, 5, b"\0" * 40),
            loaded(order, 10, 0x1000, 64, b"Builtin:Entry"),
            loaded(order, 20, 0x2000, 300),
            record(order, 2, 21, b"debug"),
            moved(order, 30, 0x1000, 0x3000, 64),
            record(order, 9, 31, b""),
            loaded(order, 40, 0x203F, 4, b"LFoo;::bar"),
            loaded(order, 50, 0x1000, 64, b""),
            record(order, 3, 60, b""),
        ]
    )

"""What the writers of traces share: the columns to write, pieces of text, wrappings."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, cast

import numpy as np

from pyallocx._columns import Array
from pyallocx._core import CALL_NAMES, TraceWriter
from pyallocx._progress import Bar, progress_bar
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, Trace

__all__ = ["Columns", "Job", "no_destroys", "write_pieces", "writer_of"]

# A piece takes about 10 ms, so that Ctrl-C is answered at once.
STEP_EVENTS: Final = 1 << 17
_LONG_EVENTS: Final = 4_000_000
_FREE: Final = CALL_NAMES.index("free")
# On traces five times as fast as the usual 6, for files that are a tenth larger.
_LEVEL: Final = 4
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)

Columns = dict[str, Array | None]


@dataclass
class Job:
    """One call of `write`: what goes where, and what the format has no place for."""

    trace: Trace
    path: str
    options: Mapping[str, Any]
    progress: bool | None = None
    left_out: dict[str, Any] = field(default_factory=dict)
    """What the file does not hold, by name; a number where there is something to count."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What else there is to say of the file."""

    @property
    def stem(self) -> str:
        """The name of the file without directory and suffixes, fit to be shown."""
        base = os.path.basename(self.path)
        return os.fsencode(base.partition(".")[0] or base).decode(errors="replace")

    @contextmanager
    def bar(self) -> Iterator[Bar]:
        """Show progress in events."""
        events = len(self.trace)
        name = os.fsencode(os.path.basename(self.path)).decode(errors="replace")
        bar = progress_bar(
            events,
            f"writing {name}",
            " events",
            wanted=self.progress,
            long=events >= _LONG_EVENTS,
        )
        try:
            yield bar
        finally:
            bar.close()

    def leave_out(self, *columns: str) -> None:
        """Note the columns that the format has no place for, and the asides."""
        for name in columns:
            if self.trace.columns().get(name) is not None:
                self.left_out[name] = "column"
        asides: Mapping[str, Mapping[str, Array]] = getattr(self.trace, "asides", {})
        for name, aside in asides.items():
            self.left_out[name] = len(next(iter(aside.values()))) if aside else 0


def no_destroys(trace: Trace) -> tuple[Columns, int]:
    """Return the columns with a free of each object in place of the destroy that ends it.

    Beside the frees that are in the trace; in the order of their objects, by the thread and at the
    time of the destroy.

    Returns
    -------
    columns : dict
        Those of the trace where it has no destroys.
    freed : int
        How many frees there are more.
    """
    columns = trace.columns()
    destroyed = np.flatnonzero(trace.op == OP_DESTROY)
    if not len(destroyed) or trace.arena is None:
        return columns, 0
    events = np.uint64(len(trace) + 1)
    born = np.flatnonzero(trace.op == OP_ALLOC)
    alive = np.ones(len(born), dtype=bool)
    alive[trace.object[trace.op == OP_FREE]] = False
    mortal = np.flatnonzero(alive)
    arenas, which = np.unique(trace.arena[destroyed], return_inverse=True)
    # A destroy is a number that rises by arena, then by event; so is the birth of an object.
    deaths = which.astype(np.uint64) * events + destroyed.astype(np.uint64)
    order = np.argsort(deaths, kind="stable")
    owners = trace.arena[born[mortal]]
    group = np.minimum(np.searchsorted(arenas, owners), len(arenas) - 1)
    births = group.astype(np.uint64) * events + born[mortal].astype(np.uint64)
    first = np.searchsorted(deaths[order], births)
    inside = first < len(order)
    death = destroyed[order[np.minimum(first, len(order) - 1)]]
    dies = inside & (arenas[group] == owners)
    dies &= which[order[np.minimum(first, len(order) - 1)]] == group
    death, mortal = death[dies], mortal[dies]

    kept = np.flatnonzero(trace.op != OP_DESTROY)
    merged = np.argsort(np.concatenate([kept, death]), kind="stable")
    made: Columns = {}
    for name, column in columns.items():
        if column is None:
            made[name] = None
            continue
        if name == "object":
            more = mortal.astype(column.dtype)
        elif name in ("thread", "time_ns", "arena"):
            more = column[death]
        else:
            value = {"op": OP_FREE, "call": _FREE}.get(name, 0)
            more = np.full(len(death), value, dtype=column.dtype)
        made[name] = np.concatenate([column[kept], more])[merged]
    return made, len(death)


def writer_of(format: str, columns: Columns, **extra: Any) -> TraceWriter:
    """Return the core's writer of these columns."""
    c = cast("dict[str, Any]", columns)
    return TraceWriter(
        format,
        c["op"],
        c["object"],
        c["size_bytes"],
        c["thread"],
        c["key"],
        c["arena"],
        c["time_ns"],
        align_log2=c["align_log2"],
        call=c.get("call"),
        **extra,
    )


def write_pieces(file: BinaryIO, writer: TraceWriter, bar: Bar) -> None:
    """Write the text of all events."""
    done = 0
    while piece := writer.step(STEP_EVENTS):
        file.write(piece)
        now = writer.done()
        bar.update(now - done)
        done = now


@contextmanager
def wrapped(file: BinaryIO, wrapping: str, member: str) -> Iterator[BinaryIO]:
    """Compress what is written; the same bytes for the same text, whenever that is."""
    if wrapping == "gz":
        with gzip.GzipFile("", "wb", _LEVEL, fileobj=file, mtime=0) as packed:
            yield cast("BinaryIO", packed)
    elif wrapping == "zip":
        info = zipfile.ZipInfo(member, _ZIP_TIME)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        # A public name there is from Python 3.13 on; this one does it in all.
        setattr(info, "_compresslevel", _LEVEL)  # noqa: B010
        with (
            zipfile.ZipFile(file, "w") as archive,
            archive.open(info, "w", force_zip64=True) as packed_member,
        ):
            yield cast("BinaryIO", packed_member)
    else:
        yield file

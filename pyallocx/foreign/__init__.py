"""Traces of programs' own tables and recorders that are read in Python: one file per format.

A format has a `recognise` (does a file begin like this?) and a `read`, which gets a `Source` and
answers with the trace. All are strict: what a file cannot say is a `TraceError`, whatever
`on_error` is. A new format is one file and one line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyallocx.foreign import csv, memray, parquet
from pyallocx.foreign._source import Source
from pyallocx.trace import Trace

__all__ = ["FORMATS", "read", "recognise"]

FORMATS: Final[Mapping[str, Callable[[Source], Trace]]] = {
    "csv": csv.read,
    "parquet": parquet.read,
    "memray": memray.read,
}
"""The readers by the name of their format."""

_RECOGNISERS: Final[Mapping[str, Callable[[bytes], bool]]] = {
    "csv": csv.recognise,
    "parquet": parquet.recognise,
    "memray": memray.recognise,
}


def recognise(head: bytes) -> str | None:
    """Return the format of what begins like this, or None."""
    return next((name for name, begins in _RECOGNISERS.items() if begins(head)), None)


def read(source: Source) -> Trace:
    """Read a trace."""
    return FORMATS[source.format](source)

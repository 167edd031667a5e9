"""Traces of programs' own tables and recorders that are read in Python: one file per format.

A format has a `recognise` (does a file begin like this?) and a `read`, which gets a `Source` and
answers with columns and metadata. All are strict: what a file cannot say is a `TraceError`, whatever
`on_error` is. A new format is one file and one line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyallocx.foreign import csv, memray, parquet
from pyallocx.foreign._source import Source
from pyallocx.trace import FORMAT_VERSION, Array, Trace

__all__ = ["FORMATS", "recognise", "read"]

Read = Callable[[Source], tuple[Mapping[str, Array | None], dict[str, Any]]]

FORMATS: Final[Mapping[str, Read]] = {
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


def read(format: str, source: Source) -> Trace:
    """Read a trace."""
    columns, more = FORMATS[format](source)
    metadata = {
        "format_version": FORMAT_VERSION,
        "reader": format,
        "file": source.base_name,
        **({"member": "/".join(source.members)} if source.members else {}),
        **more,
    }
    return source.trace(columns, metadata)

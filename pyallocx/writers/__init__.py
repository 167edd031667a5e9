"""Writers of traces: one file per format; `write` chooses.

A writer gets a `Job` and an open file, writes in pieces and says in the job what the format has no
place for. A new format is one file and one line in `FORMATS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from pyallocx._files import write_atomically
from pyallocx.trace import Trace
from pyallocx.writers import aosp, c, csv, parquet
from pyallocx.writers._base import Job, wrapped

__all__ = ["FORMATS", "format_of", "write"]

FORMATS: Final[Mapping[str, Callable[[Job, BinaryIO], None]]] = {
    "aosp": aosp.write,
    "csv": csv.write,
    "parquet": parquet.write,
    "c": c.write,
}
"""The writers by the name of their format; ``npz`` is `Trace.save`."""

TARGETS: Final = ("npz", *FORMATS)
"""The names of all formats that a trace can be written in."""

_SUFFIXES: Final[Mapping[str, str]] = {
    ".npz": "npz",
    ".txt": "aosp",
    ".aosp": "aosp",
    ".csv": "csv",
    ".parquet": "parquet",
    ".h": "c",
}
_WRAPPINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "gz": ("aosp", "csv", "c"),
    "zip": ("aosp",),
}
_OPTIONS: Final = {"c": ("name", "replay")}


def _split(path: str) -> tuple[str, str]:
    """Return the suffix that says the format, and the wrapping: ``gz``, ``zip`` or nothing."""
    root, suffix = os.path.splitext(os.path.basename(path))
    wrapping = suffix.lower().removeprefix(".")
    if wrapping in _WRAPPINGS:
        return os.path.splitext(root)[1].lower(), wrapping
    return suffix.lower(), ""


def format_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """Return the format that `write` uses for a path.

    Raises
    ------
    ValueError
        There is no such format, the suffix says none, or the format does not go into the wrapping
        that the suffix asks for.
    """
    suffix, wrapping = _split(os.fsdecode(path))
    if format is None:
        format = _SUFFIXES.get(suffix)
        if format is None and wrapping == "zip":
            format = "aosp"
        if format is None:
            known = ", ".join(f"{s} ({f})" for s, f in _SUFFIXES.items())
            raise ValueError(
                f"{os.fsdecode(path)!r} has no suffix that says a format, such as {known}, or "
                f"these before .gz; format= is one of {', '.join(TARGETS)}"
            )
    if format not in TARGETS:
        raise ValueError(f"format is {format!r}, allowed are {', '.join(map(repr, TARGETS))}")
    if wrapping and format not in _WRAPPINGS[wrapping]:
        raise ValueError(
            f"format {format!r} is not written inside .{wrapping}, only "
            f"{', '.join(map(repr, _WRAPPINGS[wrapping]))}"
        )
    return format


def write(
    trace: Trace,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    name: str | None = None,
    replay: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Write a trace in a format that others read.

    ===========  ===================================================================================
    format       what it is
    ===========  ===================================================================================
    ``npz``      our own, as `Trace.save` writes it
    ``aosp``     the text of Android's memory_replay: ``.txt``, ``.aosp``, and ``.zip``, which
                 Android's replayer takes, too
    ``csv``      one row an event, with a header
    ``parquet``  columns of the same types, by pyarrow (extra ``parquet``)
    ``c``        a C header with an array of the events, to be compiled into a benchmark: ``.h``
    ===========  ===================================================================================

    A path that ends in ``.gz`` makes gzip of ``aosp``, ``csv`` and ``c``; the same trace makes the
    same bytes. The file is written whole or not at all, also where Ctrl-C ends the writing.

    Parameters
    ----------
    trace : Trace
        What to write.
    path : str or path-like
        Where to.
    format : str, optional
        By default what the suffix says.
    name : str, optional
        For ``c``: what the names in the header begin with; by default the name of the file.
    replay : bool, default False
        For ``c``: add a function that replays the events.
    progress : bool, optional
        Whether to show a progress bar; by default for long traces, where standard error is a
        terminal.

    Returns
    -------
    dict
        ``format``; ``events`` (of the trace); ``left_out``, what the format has no place for:
        names of columns and asides, and counts; ``notes``: what else a reader should know, such as
        ``frees_by_destroys``, the frees written for objects that died with their arena, or
        ``empty_file`` where a trace of no events made a file with nothing in it, which `load`
        refuses (``aosp`` only).

    Raises
    ------
    TypeError
        `trace` is no trace, or `path` no path.
    ValueError
        No format, or none that is known; a wrapping that is not for it; an option that is not for
        it; a trace that the format cannot hold. Nothing is written.
    ImportError
        ``parquet`` without pyarrow.
    OSError
        The file could not be written; `path` is as it was.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyallocx as px
    >>> trace = px.Trace(op=[0, 2, 1], object=[0, 0, 0], size_bytes=[48, 100, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "trace.txt")
    ...     told = px.write(trace, path)
    ...     print(path.read_text(), end="")
    1: malloc 0x10 48
    1: realloc 0x10 0x10 100
    1: free 0x10
    1: thread_done 0x0
    >>> told["left_out"]
    {}
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"trace must be a Trace, not {type(trace).__name__}")
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"path must be a str or path-like, not {type(path).__name__}")
    chosen = format_of(path, format)
    options = {"name": name, "replay": replay}
    for option, value in options.items():
        if value and option not in _OPTIONS.get(chosen, ()):
            raise ValueError(f"{option} is for format 'c', not for {chosen!r}")
    job = Job(trace, os.fsdecode(path), options, progress)
    if chosen == "npz":
        trace.save(path)
    else:
        _, wrapping = _split(job.path)

        def fill(file: BinaryIO) -> None:
            with wrapped(file, wrapping, f"{job.stem}.txt") as inner:
                FORMATS[chosen](job, inner)

        write_atomically(path, fill)
    return {
        "format": chosen,
        "events": len(trace),
        "left_out": job.left_out,
        "notes": job.notes,
    }

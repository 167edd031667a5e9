"""Raw logs of the recorder: from the file to a trace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import IO, Any, Final

import numpy as np

from pyallocx._columns import Array
from pyallocx._core import RawLog, TraceError, clock_rate
from pyallocx._progress import progress_bar
from pyallocx._symbols import Mapping as MemoryMapping
from pyallocx._symbols import name_sites, parse_maps
from pyallocx.trace import FORMAT_VERSION, Trace

__all__ = ["MAGIC", "read_header", "read_rawlog"]

MAGIC: Final = b"AXRAWLOG"
"""How a raw log begins."""

SITES: Final = 1
MAPS: Final = 2
USABLE_SIZE: Final = 4
FORKED: Final = 8

CLOCKS: Final = ("tsc", "monotonic", "cntvct")
ENDED: Final = ("killed", "exit", "_exit", "exec")
"""How a recorded program ended, as far as the recorder saw it."""
CUTS: Final = (None, "max_bytes", "disk_full", "seccomp", "other", "file_size_limit")
"""Why a recording stopped before its program did."""

_STEP_RECORDS: Final = 1 << 18
_LONG_BYTES: Final = 64 << 20
# Below this the file's own two readings of the clocks are too close to tell its rate.
_LEAST_SPAN_NS: Final = 10_000_000
_MOST_MAPS: Final = 16
_MOST_MAPS_BYTES: Final = 16 << 20


def read_header(file: IO[bytes]) -> dict[str, Any]:
    """Return what the header of a raw log says, without reading its records.

    Raises
    ------
    TraceError
        It is no raw log.
    """
    return RawLog(file.fileno(), skip=True).header()


def read_rawlog(
    file: IO[bytes],
    name: str,
    base_name: str | None,
    *,
    skip: bool = False,
    progress: bool | None = None,
    added: Mapping[str, Any] | None = None,
) -> Trace:
    """Read a raw log.

    Parameters
    ----------
    file : binary file
        With a descriptor; it is read by position.
    name : str
        For messages.
    base_name : str or None
        For the metadata; None where the file is not to be named.
    skip : bool, default False
        Leave out and count what is damaged.
    progress : bool, optional
        Whether to show a progress bar.
    added : mapping, optional
        Further metadata.
    """
    try:
        log = RawLog(file.fileno(), skip=skip)
        header = log.header()
        _set_rate(log, header)
        _merge(log, header["bytes"], base_name or "the recording", progress)
    except TraceError as error:
        raise TraceError(
            f'{name}: {error} (on_error="skip" drops and counts what is damaged)'
        ) from None
    header = log.header()
    counts, dropped = log.counts()
    metadata: dict[str, Any] = {"format_version": FORMAT_VERSION, "reader": "rawlog"}
    if base_name is not None:
        metadata["file"] = base_name
    metadata |= {**describe(header), **(added or {})}
    metadata["counts"] = {kind: count for kind, count in counts.items() if count}
    metadata["dropped"] = {kind: count for kind, count in dropped.items() if count}
    tables = {
        table: {column: np.asarray(memory) for column, memory in columns.items()}
        for table, columns in log.tables().items()
    }
    columns: dict[str, Array | None] = dict(tables.pop("events"))
    align = columns["align_log2"]
    if align is not None and not align.any():
        columns["align_log2"] = None
    metadata["tids"] = log.threads()
    if header["flags"] & SITES:
        metadata["key_names"] = name_sites(log.sites(), _memory_maps(file, log))
    wanted = {"realloc_begin": True, "failed": True}
    wanted["usable_size"] = bool(header["flags"] & USABLE_SIZE)
    wanted["maps"] = bool(header["flags"] & MAPS)
    asides = {
        table: columns for table, columns in tables.items() if wanted.get(table) or _any(columns)
    }
    return Trace._adopt(columns, metadata, progress, asides)


def _any(columns: Mapping[str, Array]) -> bool:
    return len(columns["event"]) > 0


def _set_rate(log: RawLog, header: Mapping[str, Any]) -> None:
    """Measure the clock here where the file cannot tell how fast it is."""
    if CLOCKS[header["clock"]] != "monotonic" and header["clock_span_ns"] < _LEAST_SPAN_NS:
        rate = clock_rate(header["clock"])
        if rate is not None:
            log.set_rate(rate)


def _merge(log: RawLog, total: int, what: str, progress: bool | None) -> None:
    bar = progress_bar(total, f"reading {what}", "B", wanted=progress, long=total >= _LONG_BYTES)
    try:
        done = 0
        while not log.step(_STEP_RECORDS):
            now = log.header()["bytes_done"]
            bar.update(now - done)
            done = now
    finally:
        bar.close()


def _memory_maps(file: IO[bytes], log: RawLog) -> list[list[MemoryMapping]]:
    """Read the memory maps in the file, of very many the first and the newest."""
    texts = log.texts()
    chosen = texts if len(texts) <= _MOST_MAPS else [texts[0], *texts[1 - _MOST_MAPS :]]
    return [
        parse_maps(os.pread(file.fileno(), min(length, _MOST_MAPS_BYTES), offset).rstrip(b"\0"))
        for offset, length in chosen
    ]


def words_of(command: bytes) -> list[str]:
    """Return the words of a command, each of which NUL ends."""
    words = command.split(b"\0")
    if words and not words[-1]:
        words.pop()
    # What is no UTF-8 could be neither saved nor shown.
    return [word.decode(errors="replace") for word in words]


def program_of(header: Mapping[str, Any]) -> str:
    """Return the name by which a program was called: its file may have several (links)."""
    words = words_of(header["command"])
    name = os.path.basename(words[0]).removeprefix("-") if words else ""
    if header["flags"] & FORKED:
        # By then it may have written a title over its arguments.
        name = name.split(" ")[0].rstrip(":")
    return name or os.path.basename(bytes(header["exe"])).decode(errors="replace")


def describe(header: Mapping[str, Any]) -> dict[str, Any]:
    """Turn what a header says into metadata."""
    command = words_of(header["command"])
    about: dict[str, Any] = {
        "program": program_of(header),
        "executable": bytes(header["exe"]).decode(errors="replace"),
        "command": command,
        "pid": header["pid"],
        "ended": _one_of(ENDED, header["ended"]),
        "clock": {
            "kind": CLOCKS[header["clock"]],
            "ns_per_tick": header["ns_per_tick"] if header["clock"] != 1 else 1.0,
            "start_realtime_ns": header["start_realtime_ns"],
            "start_monotonic_ns": header["mono0_ns"],
        },
        "forks": header["forks"],
        "children_not_recorded": header["children_not_recorded"],
    }
    if header["cut"]:
        about["cut"] = {"why": _one_of(CUTS, header["cut"]), "time_ns": header["cut_ns"]}
    if header["own_malloc"]:
        about["own_malloc"] = True
    if header["flags"] & FORKED:
        about["forked_from"] = header["ppid"]
    return about


def _one_of(names: tuple[str | None, ...], number: int) -> str:
    name = names[number] if number < len(names) else None
    return name or f"unknown ({number})"


FLAGS: Final[Mapping[str, int]] = MappingProxyType(
    {"sites": SITES, "maps": MAPS, "usable_size": USABLE_SIZE}
)
"""What can be recorded beside the events, as flags of a log."""

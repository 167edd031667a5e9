"""Readers of profiles: histograms of request sizes that allocators, tools and servers write.

One reader per format, strict: a line that the format does not allow is a `TraceError` with its
number, and nothing is left out in silence. `pyallocx.load_profile` recognises and reads them.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from typing import IO, Any, Final

from pyallocx._core import TraceError
from pyallocx._streams import Stream, damage
from pyallocx._tracefile import (
    LISTED,
    TraceLoader,
    UnknownFormat,
    Unwrapper,
    recognise_trace,
)
from pyallocx.profile import SAVED, Profile
from pyallocx.profiles._reader import ProfileReader
from pyallocx.profiles.bpf import BpftraceReader, MemleakReader
from pyallocx.profiles.dhat import DhatReader
from pyallocx.profiles.jemalloc import JemallocReader
from pyallocx.profiles.lines import FleetReader, HeaptrackReader, MemcachedReader, TextReader
from pyallocx.profiles.malloc_info import GlibcFreeReader, ScudoReader
from pyallocx.trace import Trace

__all__ = ["FORMATS"]

FORMATS: Final[Mapping[str, type[ProfileReader]]] = {
    "text": TextReader,
    "scudo": ScudoReader,
    "glibc-free": GlibcFreeReader,
    "jemalloc": JemallocReader,
    "memcached": MemcachedReader,
    "fleet": FleetReader,
    "heaptrack": HeaptrackReader,
    "dhat": DhatReader,
    "bpftrace": BpftraceReader,
    "memleak": MemleakReader,
}
"""The readers by the name of their format."""

WEIGHTS: Final = ("count", "peak", "end", "byte_time")

_CHUNK_BYTES: Final = 1 << 20

_BEGINNINGS: Final = (
    ("scudo", re.compile(rb'<malloc version="scudo-')),
    ("glibc", re.compile(rb'<malloc version="1"')),
    ("jemalloc", re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"jemalloc"[ \t\r\n]*:')),
    ("dhat", re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"dhatFileVersion"[ \t\r\n]*:')),
    (
        "memleak",
        re.compile(
            rb"(?:(?:Attaching to |Executing ')[^\n]*\n)?(?:[ \t]*\r?\n)*"
            rb"\[[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}\] Top [0-9]+ stacks with outstanding"
        ),
    ),
    (
        "bpftrace",
        re.compile(
            rb"(?:Attach(?:ing|ed)(?: to)? [0-9]+ probes?[^\n]*\n)?(?:(?:\^C)?[ \t]*\r?\n)*"
            rb"@[A-Za-z_0-9]*(?:\[[^\n]*\])?:[ \t]*(?:[0-9]+[ \t]*)?(?:\r?\n|\Z)"
        ),
    ),
    ("memcached", re.compile(rb"STAT [0-9]|STAT sizes_|END\r?\n?\Z")),
    ("text", re.compile(re.escape(SAVED).encode())),
    ("fleet", re.compile(rb"[ \t]*[0-9]+[ \t]*,[^,\n]*,[^,\n]*(?:\n|\Z)")),
    # Of a line that is wrong in its count the reader can say more than that it knows no such file.
    (
        "text",
        re.compile(
            rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*[0-9]+[ \t]+[-+.0-9a-zA-Z]+[ \t]*(?:[#\r\n]|\Z)"
        ),
    ),
)


_TEXT: Final = "'size count' lines and # comments"

# Lines of three columns that are no perf map: nothing is mapped below 64 KiB, and no name is a
# number.
_NO_ADDRESSES: Final = re.compile(rb"0*[0-9a-fA-F]{1,4} |[0-9]+ [0-9]+ [0-9.]+[ \t]*(?:\r?\n|\Z)")

_ONLY_COMMENTS: Final = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))+\Z")


def _begins(head: bytes) -> str:
    if _ONLY_COMMENTS.match(head):
        return "this has only comments"
    return f"this begins with {head[:32]!r}"


def recognise(head: bytes) -> str | None:
    """Return the format of what begins like this, ``"glibc"`` for glibc's, or None."""
    for format, beginning in _BEGINNINGS:
        if beginning.match(head):
            return format
    return None


def stem(path: str) -> str:
    """Return the name of a file without directory and suffix, fit to be shown and saved."""
    base = os.path.basename(path)
    return os.fsencode(os.path.splitext(base)[0] or base).decode(errors="replace")


class _ProfileLoader(Unwrapper[Profile | Trace]):
    """One call of `load_profile`, or of a caller that takes a trace as well."""

    wanted = "a profile"

    def __init__(
        self,
        file: IO[bytes],
        path: str,
        format: str | None,
        weight: str | None,
        member: str | None,
        traces: TraceLoader | None,
    ) -> None:
        super().__init__(file, path, format, member)
        self.name = stem(path)
        self.weight = weight
        self.traces = traces
        if traces is not None:
            self.wanted = "a profile or a trace"

    def columns(self, archive: zipfile.ZipFile, file: IO[bytes], name: str) -> Profile | Trace:
        """Read a trace, or say how it would become a profile."""
        if self.traces is None:
            raise TraceError(
                f"{name}: expected a profile, this is a trace; px.load(...).profile() makes a "
                "profile of it"
            )
        return self.traces.columns(archive, file, name)

    def plain(self, stream: Stream, head: bytes, name: str) -> Profile | Trace:
        """Read a profile by its reader."""
        format = self.format or recognise(head)
        if format == "glibc":
            raise TraceError(
                f"{name}: line 1: glibc's malloc_info lists free chunks, not what was asked for; "
                'format="glibc-free" reads those'
            )
        if format is None and self.traces is not None:
            self.traces.members = self.members
            try:
                kind = recognise_trace(head, name)
            except UnknownFormat:
                raise TraceError(
                    f"{name}: {_begins(head)}; expected a trace or a profile (such as {_TEXT}) "
                    f"of a format that {LISTED}"
                ) from None
            if kind == "perfmap" and _NO_ADDRESSES.match(head):
                # Of a perf map these would be addresses and sizes in hexadecimal, and names.
                raise TraceError(
                    f"{name}: no profile, whose lines have two columns (size count), and as a perf "
                    "map (address, size, name) its addresses would be too small or its names "
                    f"numbers; {_begins(head)}"
                )
            return self.traces.read_text(stream, name, kind)
        if format is None:
            raise TraceError(
                f"{name}: {_begins(head)}; expected a profile (such as {_TEXT}) of a format that "
                f"{LISTED} (a trace is read by px.load)"
            )
        reader = FORMATS[format](self.weight)
        metadata: dict[str, Any] = {"format": format, "file": self.base_name}
        if self.members:
            metadata["member"] = "/".join(self.members)
        try:
            while True:
                with damage(name, stream):
                    piece = stream.read(_CHUNK_BYTES)
                if not piece:
                    break
                reader.feed(piece)
            reader.finish()
            saved = reader.name if isinstance(reader, TextReader) else None
            return reader.profile(self.name if saved is None else saved, metadata)
        except TraceError as error:
            text = str(error)
            raise TraceError(text if text.startswith(f"{name}: ") else f"{name}: {text}") from None


def load_file(
    path: str,
    *,
    format: str | None = None,
    weight: str | None = None,
    member: str | None = None,
    traces: bool,
    on_error: str = "raise",
    progress: bool | None = None,
) -> Profile | Trace:
    """Read a profile, or with `traces` either; see `pyallocx.load_profile`."""
    if format is not None and format not in FORMATS:
        raise ValueError(f"format is {format!r}, allowed are {', '.join(map(repr, FORMATS))}")
    if weight is not None and weight not in WEIGHTS:
        raise ValueError(f"weight is {weight!r}, allowed are {', '.join(map(repr, WEIGHTS))}")
    with open(path, "rb") as file:
        inner = TraceLoader(file, path, on_error, None, None, progress) if traces else None
        return _ProfileLoader(file, path, format, weight, member, inner).read(file, path)

"""Code traces: what just-in-time compilers wrote down about the code they made.

One module per format says what its lines mean; `pyallocx.load` recognises them all by content.
Where a format has no death of code, deaths are inferred, and ``metadata["obtained"]`` says how many
events were seen in the file and how many inferred, by which rule:

``overlap``
    Later code was created at, or moved to, an address that the dead code had a byte of.
``deleted_chunk``
    The page that the code lay on was given back.

``metadata["key_names"]`` names the values of the column ``key``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pyallocx.codetraces import (
    hotspot_logcompilation,
    hotspot_xlog,
    jitdump,
    jvmti,
    luajit,
    perfmap,
    v8,
)
from pyallocx.codetraces._reader import CodeReader

__all__ = ["FORMATS", "recognise"]

FORMATS: Final[Mapping[str, Callable[[bool], CodeReader]]] = MappingProxyType(
    {
        "v8": v8.V8Reader,
        "jitdump": jitdump.JitdumpReader,
        "perfmap": perfmap.PerfMapReader,
        "hotspot_xlog": hotspot_xlog.XlogReader,
        "hotspot_logcompilation": hotspot_logcompilation.LogCompilationReader,
        "jvmti": jvmti.JvmtiReader,
        "luajit": luajit.LuajitReader,
    }
)
"""The formats by the names that `pyallocx.load` knows, each with its reader."""

_RECOGNISERS: Final = {
    "v8": v8.recognise,
    "hotspot_xlog": hotspot_xlog.recognise,
    "hotspot_logcompilation": hotspot_logcompilation.recognise,
    "jvmti": jvmti.recognise,
    "luajit": luajit.recognise,
    "perfmap": perfmap.recognise,
}


def recognise(head: bytes) -> list[tuple[int, str]]:
    """Return the formats that can have written the beginning of a file, and from which byte on."""
    if jitdump.recognise(head) is not None:
        return [(0, "jitdump")]
    if b"\0" in head:
        return []
    found = [(recogniser(head), format) for format, recogniser in _RECOGNISERS.items()]
    return [(at, format) for at, format in found if at is not None]

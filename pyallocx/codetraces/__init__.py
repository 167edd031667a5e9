"""Code traces: what just-in-time compilers wrote down about the code they made.

One module per format says what its lines mean; `pyallocx.load` recognises them all by content.
Where a format has no death of code, deaths are inferred, and ``metadata["obtained"]`` says how many
events were seen in the file and how many inferred, by which rule:

``overlap``
    Later code was created at, or moved to, an address that the dead code had a byte of.
``deleted_chunk``
    The page that the code lay on was given back. Not so the deaths of all code at the end of the
    program: they are left out, and counted as ``deaths_at_exit``.

In ``metadata["counts"]`` is what was met beside events. ``unended_lines`` is 1 where the last line
lacks its end but is whole as far as can be told. Where it is not, the file was cut off: the line is
refused, or dropped and counted as ``truncated``.

``metadata["key_names"]`` names the values of the column ``key``.
"""

from __future__ import annotations

import re
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

__all__ = ["FORMATS", "recognise", "resembled"]

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


# What only these formats begin like, right or wrong: so that a file whose first lines are malformed
# gets its own format's error, with the line and what was expected there.
_RESEMBLES: Final = {
    format: re.compile(rb"\s*(" + begins + rb")", re.MULTILINE)
    for format, begins in {
        "v8": rb"(code-creation|code-move|v8-version),",
        "hotspot_logcompilation": rb"<(hotspot_log|nmethod|make_not_entrant|make_unloaded)\b",
        "hotspot_xlog": (
            rb"\[[^\]\n]*\][^\n]*"
            rb"(Installing (osr )?method\b|Flushing nmethod\b|CodeCache: |CodeHeap ')"
        ),
        "luajit": rb"[ABX],\d*\.\d*(,|\r?$)|A,(?!\d*,)[^,\n]*,0x[^,\n]*,[^,\n]*,[^,\n]*,",
        "jvmti": rb"[AF],(\d+,|[^,\n]*,0x)",
        # The first line of a perf map may be the malformed one.
        "perfmap": rb"([^\n]*\n){0,7}(?=\S*\d)[0-9a-fA-F]{6,16} [0-9a-fA-F]{1,16} [^\n]*\S",
    }.items()
}


def recognise(head: bytes) -> list[tuple[int, str]]:
    """Return the formats that can have written the beginning of a file, and from which byte on."""
    if jitdump.recognise(head) is not None:
        return [(0, "jitdump")]
    found = [(recogniser(head), format) for format, recogniser in _RECOGNISERS.items()]
    # In a binary file, a line somewhere means nothing.
    last = 0 if b"\0" in head else len(head)
    return [(at, format) for at, format in found if at is not None and at <= last]


def resembled(head: bytes) -> str | None:
    """Return the format that a file which none can have written begins like, or None."""
    for format, begins in _RESEMBLES.items():
        if begins.match(head):
            return format
    return None

"""How the text formats of traces are told apart: by a line that one of them can have written."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["recognise_text", "resembled_text"]

_CALLS: Final = (
    rb"(?:malloc|calloc|realloc|reallocarray|posix_memalign|aligned_alloc|memalign|valloc|pvalloc"
    rb"|free|malloc_usable_size)"
)
_ADDRESS: Final = rb"(?:0x[0-9a-fA-F]+|\(nil\))"
_END: Final = rb"[ \t\r]*$"
_TABLE_ROW: Final = rb"\{(?:MALLOC|CALLOC|REALLOC|MEMALIGN|FREE),"
# What ltrace may put before a call: a thread, a time, an instruction pointer.
_LTRACE_PREFIX: Final = (
    rb"(?:\[pid +\d+\] |\d+ )?(?:\d+(?::\d\d:\d\d)?(?:\.\d+)? +)?(?:\[0x[0-9a-f]+\] )?"
)

# In the order in which they are asked where several can have written the same line.
_LINES: Final = {
    format: re.compile(line, re.MULTILINE)
    for format, line in {
        "aosp": rb"^[ \t]*\d+:[ \t]*(?:malloc|calloc|realloc|memalign|free|thread_done)\b",
        "logalloc": (
            rb"^[ \t]*\d+ (?:\d+ )?(?:"
            + _CALLS
            + rb"\([^()\n]*\)(?:=(?:0x[0-9a-fA-F]+|#\d+|0))?|jemalloc_stats\(\))"
            + _END
        ),
        "valgrind": rb"^--\d+-- (?:" + _CALLS + rb"|_Z[nd][wal]\w+)\(",
        "utrace": rb"^<jemalloc>:utrace: +\d+ ",
        "ltrace": (
            rb"^"
            + _LTRACE_PREFIX
            + rb"(?:(?:[\w./+-]+->)?"
            + _CALLS
            + rb"(?:@[\w.+-]+)?\([^()\n]*(?:\) += |<unfinished \.\.\.>)|<\.\.\. "
            + _CALLS
            + rb" resumed>)"
        ),
        "wee_alloc": rb"^[ \t]*(?:Alloc|Free)\(\d+\),?" + _END,
        "rep": rb"\A(?:[ \t]*\d+[ \t]*\r?\n\s*){4}[arf][ \t]+-?\d",
        "minimalloc": rb"\A[ \t]*id[ \t]*,[ \t]*lower[ \t]*,[ \t]*upper[ \t]*,[ \t]*size" + _END,
        "malloc_sql": rb"^[ \t]*" + _TABLE_ROW + rb"[ \t]*\d+,[ \t]*\d+,[ \t]*\d+[ \t]*\},?",
        "mtrace": (
            rb"^[ \t]*(?:=[ \t]+(?:Start|End)|(?:@ [^\n]* )?(?:[-<] "
            + _ADDRESS
            + rb"|[+>!] "
            + _ADDRESS
            + rb" [0-9a-fA-Fx]+))"
            + _END
        ),
    }.items()
}

# What only these formats begin like, right or wrong.
_RESEMBLES: Final = {
    format: re.compile(rb"\s*(?:" + begins + rb")")
    for format, begins in {
        "aosp": rb"\d+:[ \t]*\w+[ \t]+0x",
        "logalloc": rb"\d+ (?:\d+ )?" + _CALLS + rb"\(",
        "valgrind": rb"--\d+-- " + _CALLS + rb"\b",
        "utrace": rb"<jemalloc>:utrace:",
        "ltrace": _LTRACE_PREFIX + rb"(?:[\w./+-]+->)?" + _CALLS + rb"(?:@[\w.+-]+)?\(",
        "wee_alloc": rb"(?:Alloc|Free)\(",
        "rep": rb"(?:[ \t]*\d+[ \t]*\r?\n\s*)+[arf] ",
        "minimalloc": rb"id,(?:lower|upper|size)",
        "malloc_sql": rb"\{?" + _TABLE_ROW[2:],
        "mtrace": rb"@ [^\n]* [-+<>!] |= Start",
    }.items()
}

_HEAPTRACK: Final = re.compile(rb"(?:#[^\n]*\n)*v [0-9a-fA-F]+(?: [0-9a-fA-F]+)?[ ]*(?:\r?\n|\Z)")
_HEAPTRACK_KIND: Final = re.compile(
    rb"^(?:(?P<raw>[xm] |\+ [0-9a-fA-F]+ [0-9a-fA-F]+ [0-9a-fA-F])|[sia] |[-+] [0-9a-fA-F]+$)",
    re.MULTILINE,
)


def _heaptrack(head: bytes) -> str | None:
    if _HEAPTRACK.match(head) is None:
        return None
    found = _HEAPTRACK_KIND.search(head)
    return "heaptrack" if found and found["raw"] else "heaptrack_interpreted"


def recognise_text(head: bytes) -> list[tuple[int, str]]:
    """Return the formats that can have written the beginning of a file, and from which byte on."""
    if b"\0" in head:
        return []
    kind = _heaptrack(head)
    if kind is not None:
        return [(0, kind)]
    return [
        (found.start(), format)
        for format, line in _LINES.items()
        if (found := line.search(head)) is not None
    ]


def resembled_text(head: bytes) -> str | None:
    """Return the format that a file which none can have written begins like, or None."""
    for format, begins in _RESEMBLES.items():
        if begins.match(head):
            return format
    return None

r"""A C header: the events as an array, to be compiled into a benchmark.

An event names the slot of its object: a free gives its slot to the next alloc, so that a replay
needs one array of as many pointers as objects live at a time. The fields of an event have the
smallest types that hold them, the widest first; alignments and threads are there only where the
trace has them. Times, keys, arenas and calls are left out; a destroy becomes a free of each object.

The header is C11 and C++17. Compilers take long over traces of more than a few million events:
cut those (`Trace.head`).
"""

from __future__ import annotations

import re
from typing import Any, BinaryIO, Final

import numpy as np

from pyallocx.trace import OP_ALLOC, OP_FREE, OP_REALLOC
from pyallocx.writers._base import STEP_EVENTS, Columns, Job, no_destroys, write_pieces, writer_of

__all__ = ["write"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_TOP: Final = """\
/* {title}
 *
 * {events:,} events, at most {slots:,} objects live at a time, {peak}.
 * An event names the slot of its object, below {upper}_SLOTS:
 *
 *     {upper}_ALLOC    slots[slot] = malloc(size)
 *     {upper}_FREE     free(slots[slot])
 *     {upper}_REALLOC  slots[slot] = realloc(slots[slot], size)
 *{more}
 * What is in a slot at the end was not freed.
 */
#ifndef {upper}_TRACE_H
#define {upper}_TRACE_H

#include <stddef.h>
#include <stdint.h>

#define {upper}_EVENTS ((size_t){events})
#define {upper}_SLOTS ((size_t){slots})
#define {upper}_THREADS {threads}u
#define {upper}_ALLOC {alloc}
#define {upper}_FREE {free}
#define {upper}_REALLOC {realloc}

struct {name}_event {{
{fields}
}};

static const struct {name}_event {name}_events[] = {{
"""

_REPLAY: Final = """
#include <stdlib.h>

/* What is replayed with: define these four before the header to measure another allocator. */
#ifndef {upper}_DO_MALLOC
#define {upper}_DO_MALLOC(size) malloc(size)
#define {upper}_DO_ALIGNED(align, size) aligned_alloc(align, size)
#define {upper}_DO_REALLOC(old, size) realloc(old, size)
#define {upper}_DO_FREE(old) free(old)
#endif

/* Replays all events by one thread, then frees what is left. Returns the events done: fewer than
 * {upper}_EVENTS where an allocation failed. A size of 0 is asked for as 1, since NULL could be
 * either answer; a size with an alignment is rounded up to it, as aligned_alloc wants. */
static inline size_t {name}_replay(void)
{{
    void **const slots = (void **)calloc({upper}_SLOTS + 1, sizeof(void *));
    size_t done = 0;
    if (slots == NULL) {{
        return 0;
    }}
    for (; done < {upper}_EVENTS; done++) {{
        const struct {name}_event *const event = &{name}_events[done];
        void **const slot = &slots[event->slot];
        const size_t size = event->size != 0 ? (size_t)event->size : 1;
        void *made;
        if (event->op == {upper}_FREE) {{
            {upper}_DO_FREE(*slot);
            *slot = NULL;
            continue;
        }}
        if (event->op == {upper}_REALLOC) {{
            made = {upper}_DO_REALLOC(*slot, size);
{aligned}        }} else {{
            made = {upper}_DO_MALLOC(size);
        }}
        if (made == NULL) {{
            break;
        }}
        *slot = made;
    }}
    for (size_t i = 0; i < {upper}_SLOTS; i++) {{
        if (slots[i] != NULL) {{
            {upper}_DO_FREE(slots[i]);
        }}
    }}
    free(slots);
    return done;
}}
"""

# Compilers warn of loops that never run.
_NOTHING: Final = """
static inline size_t {name}_replay(void)
{{
    return 0;
}}
"""

_ALIGNED: Final = """\
        }} else if (event->align_log2 > 4) {{
            const size_t align = (size_t)1 << event->align_log2;
            made = {upper}_DO_ALIGNED(align, (size + align - 1) & ~(align - 1));
"""


def write(job: Job, file: BinaryIO) -> None:
    """Write the trace of `job` to `file`."""
    trace = job.trace
    name = _name(job)
    columns, freed = no_destroys(trace)
    job.leave_out("time_ns", "key", "arena", "call")
    job.left_out["metadata"] = len(trace.metadata)
    if freed:
        job.notes["frees_by_destroys"] = freed
    events = len(columns["op"])  # type: ignore[arg-type]
    slots = _most_live(columns)
    threads = int(trace.thread.max()) + 1 if events else 1
    fields = _fields(columns, slots, threads)
    try:
        peak = f"{trace.summary()['peak_live_bytes'] or 0:,} bytes live at the peak"
    except OverflowError:
        peak = "more live bytes than 64 bits count"
    aligned = "a" in (field[0] for field in fields)
    more = "\n * align_log2: the alignment asked for is 1 << align_log2; 0 where none was.\n *"
    texts: dict[str, Any] = {
        "name": name,
        "upper": name.upper(),
        "title": _title(job),
        "events": events,
        "slots": slots,
        "threads": threads,
        "peak": peak,
        "alloc": OP_ALLOC,
        "free": OP_FREE,
        "realloc": OP_REALLOC,
        "more": more if aligned else "",
        "fields": "\n".join(f"    uint{bits}_t {field};" for _, field, bits in fields),
    }
    file.write(_TOP.format_map(texts).encode())
    writer = writer_of("c", columns, fields="".join(field[0] for field in fields))
    with job.bar() as bar:
        write_pieces(file, writer, bar)
    if not events:
        # An array of nothing is no C.
        file.write(
            b"{0},\n" if len(fields) == 1 else f"{{{','.join('0' * len(fields))}}},\n".encode()
        )
    tail = "};\n"
    if job.options.get("replay"):
        texts["aligned"] = _ALIGNED.format_map(texts) if aligned else ""
        tail += (_REPLAY if events else _NOTHING).format_map(texts)
    file.write(f"{tail}\n#endif\n".encode())


def _name(job: Job) -> str:
    given = job.options.get("name")
    if given is not None:
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise ValueError(
                f"name is {given!r}, expected a name of C: letters, digits and underscores, at "
                "most 64, no digit first"
            )
        return given
    made = re.sub(r"[^A-Za-z0-9]+", "_", job.stem).strip("_").lower()[:57]
    return made if _NAME.fullmatch(made) else f"trace_{made}".rstrip("_")


def _title(job: Job) -> str:
    """Return what the events are of, fit for a comment."""
    text = "Allocation events"
    for key in ("program", "command", "file"):
        value = job.trace.metadata.get(key)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if isinstance(value, str) and value:
            shown = "".join(c if " " <= c <= "~" and c not in "\\?" else "_" for c in value)
            return f"{text} of {shown[:60].replace('*/', '* /').replace('/*', '/ *')}"
    return text


def _most_live(columns: Columns) -> int:
    """Return how many objects live at a time at most."""
    op: Any = columns["op"]
    live = most = 0
    for start in range(0, len(op), STEP_EVENTS):
        part = op[start : start + STEP_EVENTS]
        change = np.cumsum((part == OP_ALLOC).astype(np.int64) - (part == OP_FREE))
        most = max(most, live + int(change.max()))
        live += int(change[-1])
    return most


def _bits(largest: int) -> int:
    return next(bits for bits in (8, 16, 32, 64) if largest < 1 << bits)


def _fields(columns: Columns, slots: int, threads: int) -> list[tuple[str, str, int]]:
    """Return the fields of an event: the letter of the core, the name, the bits; widest first."""
    op: Any = columns["op"]
    size: Any = columns["size_bytes"]
    align: Any = columns["align_log2"]
    sized = size[op != OP_FREE]
    fields = [
        ("z", "size", _bits(int(sized.max()) if len(sized) else 0)),
        ("s", "slot", _bits(max(slots - 1, 0))),
        ("o", "op", 8),
    ]
    if align is not None and np.any(align[op == OP_ALLOC]):
        fields.append(("a", "align_log2", 8))
    if threads > 1:
        fields.append(("t", "thread", _bits(threads - 1)))
    return sorted(fields, key=lambda field: -field[2])

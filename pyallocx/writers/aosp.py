"""The text of Android's memory_replay.

One event a line, ``TID: malloc 0xADDRESS SIZE [START END]``. Addresses are made up: a program's own
are not in a trace. They tell live objects apart, are multiples of the alignment asked for (16 at
least) and never 0; an object keeps its address when it is reallocated, a dead one's is used again.
They place nothing, so blocks overlap if one reads them as places.

What the format has no place for is noted: keys, arenas (a destroy becomes a free of each object it
ends), alignments of reallocs. The functions that made the events choose the line where known; of
valloc and pvalloc the line is a memalign to 4096. Where there are times, a line has the event's as
its start and its end. ``thread_done`` follows the last event of each thread. Objects that live at
the end are left alive. A trace of no events is an empty file, which is a trace to Android, but not
to `pyallocx.load`: there is nothing in it to tell a format by. That is noted, too.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from pyallocx._columns import Array
from pyallocx.trace import OP_REALLOC, Trace
from pyallocx.writers._base import Job, no_destroys, write_pieces, writer_of

__all__ = ["write"]

# What the number of a thread may be on Android.
_MOST_TID: Final = 2**31 - 1
_DENSE: Final = 1 << 24


def write(job: Job, file: BinaryIO) -> None:
    """Write the trace of `job` to `file`."""
    trace = job.trace
    tids = _tids(trace)
    columns, freed = no_destroys(trace)
    job.leave_out("key", "arena")
    if freed:
        job.notes["frees_by_destroys"] = freed
    if trace.align_log2 is not None:
        aligned = np.count_nonzero(trace.align_log2[trace.op == OP_REALLOC])
        if aligned:
            job.left_out["alignments_of_reallocs"] = int(aligned)
    empty = np.count_nonzero(trace.size_bytes[trace.op == OP_REALLOC] == 0)
    if empty:
        # Android's own realloc frees then, and the replayer with it.
        job.notes["reallocs_to_size_0"] = int(empty)
    thread: Any = columns["thread"]
    if not len(thread):
        job.notes["empty_file"] = 1
    writer = writer_of("aosp", columns, thread_ends=_thread_ends(thread), tids=tids)
    with job.bar() as bar:
        write_pieces(file, writer, bar)


def _tids(trace: Trace) -> npt.NDArray[np.uint32] | None:
    """Return the numbers that the threads had, None where each is to get its own plus one."""
    threads = int(trace.thread.max()) + 1 if len(trace) else 0
    known = trace.metadata.get("tids")
    if isinstance(known, list) and len(known) >= threads:
        fit = all(type(tid) is int and 1 <= tid <= _MOST_TID for tid in known)
        if fit and len(set(known)) == len(known):
            return np.array(known, dtype=np.uint32)
    if threads > _MOST_TID:
        raise ValueError(
            f"thread {threads - 1} would be number {threads} in the file, allowed are 1 to "
            f"{_MOST_TID}"
        )
    return None


def _thread_ends(thread: Array) -> npt.NDArray[np.uint64]:
    """Return the last event of each thread, in order."""
    if len(thread) and int(thread.max()) < _DENSE:
        last = np.full(int(thread.max()) + 1, -1, dtype=np.int64)
        # Of several values for one place, the last stays.
        last[thread] = np.arange(len(thread))
        last = last[last >= 0]
    else:
        last = len(thread) - 1 - np.unique(thread[::-1], return_index=True)[1]
    return np.sort(last).astype(np.uint64)

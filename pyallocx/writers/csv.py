"""CSV: one row an event, under a header with the names of the columns that the trace has.

Operations and calls are words, all else whole numbers; the object of a destroy is empty. Asides and
metadata are left out. `pyallocx.load` reads the file again, with all columns.
"""

from __future__ import annotations

from typing import BinaryIO

from pyallocx.writers._base import Job, write_pieces, writer_of

__all__ = ["write"]


def write(job: Job, file: BinaryIO) -> None:
    """Write the trace of `job` to `file`."""
    columns = job.trace.columns()
    job.leave_out()
    job.left_out["metadata"] = len(job.trace.metadata)
    file.write((",".join(name for name in columns if columns[name] is not None) + "\n").encode())
    with job.bar() as bar:
        write_pieces(file, writer_of("csv", columns), bar)

"""Parquet, by pyarrow: a column for each of the trace, of the same unsigned type.

The metadata of the trace is JSON in that of the schema, under the key ``pyallocx``. Asides are left
out. `pyallocx.load` reads the file again, with all columns.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, BinaryIO, Final

from pyallocx.trace import FORMAT_VERSION
from pyallocx.writers._base import Job

__all__ = ["METADATA_KEY", "need_pyarrow", "write"]

METADATA_KEY: Final = b"pyallocx"
_GROUP_EVENTS: Final = 1 << 20


def need_pyarrow(what: str) -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet, or say how to get them for `what`."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as exc:
        raise ImportError(f"{what} needs pyarrow: pip install 'pyallocx[parquet]'") from exc


def write(job: Job, file: BinaryIO) -> None:
    """Write the trace of `job` to `file`."""
    arrow, parquet = need_pyarrow("format 'parquet'")
    columns = {name: c for name, c in job.trace.columns().items() if c is not None}
    job.leave_out()
    text = json.dumps({**job.trace.metadata, "format_version": FORMAT_VERSION})
    schema = arrow.schema(
        [arrow.field(name, arrow.from_numpy_dtype(c.dtype), False) for name, c in columns.items()],
        metadata={METADATA_KEY: text.encode()},
    )
    with (
        job.bar() as bar,
        parquet.ParquetWriter(file, schema, compression="zstd", version="2.6") as writer,
    ):
        for start in range(0, len(job.trace), _GROUP_EVENTS):
            part = [arrow.array(c[start : start + _GROUP_EVENTS]) for c in columns.values()]
            writer.write_table(arrow.table(part, schema=schema))
            bar.update(len(part[0]))

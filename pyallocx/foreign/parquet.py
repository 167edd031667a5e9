"""The Parquet files that `pyallocx.write` makes, by pyarrow: the columns of a trace."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pyallocx._columns import COLUMN_DTYPES, REQUIRED_COLUMNS, Array
from pyallocx.foreign._source import Source
from pyallocx.trace import Trace
from pyallocx.writers.parquet import METADATA_KEY, need_pyarrow

__all__ = ["read", "recognise"]


def recognise(head: bytes) -> bool:
    """Whether a file is Parquet."""
    return head.startswith(b"PAR1")


def read(source: Source) -> Trace:
    """Read all columns, and the metadata that `write` left."""
    arrow, parquet = need_pyarrow("a trace in Parquet")
    with source.on_disk() as path:
        try:
            with parquet.ParquetFile(path) as file:
                return source.trace(_columns(source, file), _metadata(source, file))
        except (arrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            source.fail(f"no Parquet file that pyarrow reads: {error}")


def _columns(source: Source, file: Any) -> dict[str, Array | None]:
    schema = file.schema_arrow
    missing = [name for name in REQUIRED_COLUMNS if name not in schema.names]
    unknown = [name for name in schema.names if name not in COLUMN_DTYPES]
    if missing or unknown or len(set(schema.names)) != len(schema.names):
        source.fail(
            f"expected the columns of a trace ({', '.join(COLUMN_DTYPES)}), "
            f"{', '.join(REQUIRED_COLUMNS)} among them, found {', '.join(schema.names)[:200]}"
        )
    for one in schema:
        allowed = COLUMN_DTYPES[one.name]
        if str(one.type) not in [np.dtype(name).name for name in allowed]:
            wanted = " or ".join(np.dtype(name).name for name in allowed)
            source.fail(f"column {one.name!r} must hold {wanted}, found {one.type}")
    parts: dict[str, list[Array]] = {name: [] for name in schema.names}
    events = 0
    with source.bar(file.metadata.num_rows, " events", file.metadata.num_rows > 4_000_000) as bar:
        for batch in file.iter_batches(1 << 20):
            for name, column in zip(schema.names, batch.columns, strict=True):
                if column.null_count:
                    source.fail(f"column {name!r} has no value in {column.null_count} of the rows")
                parts[name].append(column.to_numpy())
            events += batch.num_rows
            bar.update(batch.num_rows)
    types = {one.name: one.type.to_pandas_dtype() for one in schema}
    return {
        name: np.concatenate(part) if part else np.empty(0, types[name])
        for name, part in parts.items()
    }


def _metadata(source: Source, file: Any) -> dict[str, Any]:
    text = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    if text is None:
        return {}
    try:
        metadata = json.loads(text)
        json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        source.fail(f"the metadata of the schema is no JSON: {error}")
    if not isinstance(metadata, dict):
        source.fail("the metadata of the schema holds no object")
    return metadata

"""Files that are either written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["write_atomically"]


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Call `write` with a binary file that becomes `path` only if `write` returns.

    A reader of `path` never sees half a file, and an interrupted run leaves the old one. What is
    not a regular file (a pipe, ``/dev/stdout``) is written directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            write(stream)
        return
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    try:
        with partial.open("xb") as stream:
            write(stream)
            stream.flush()
            # Else a crash soon after could leave the new name with none of its bytes.
            os.fsync(stream.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise

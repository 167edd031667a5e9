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
    # The real path of /dev/stdout on a pipe names nothing that can be opened.
    if os.path.exists(path) and not os.path.isfile(path):
        target = Path(path)
        with target.open("wb") as stream:
            write(stream)
        return
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    try:
        stream = partial.open("xb")
    except OSError as exc:
        # The hidden name would tell the caller nothing.
        raise type(exc)(exc.errno, exc.strerror, os.fspath(path)) from None
    try:
        with stream:
            write(stream)
            stream.flush()
            # Else a crash soon after could leave the new name with none of its bytes.
            os.fsync(stream.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise

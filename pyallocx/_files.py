"""Files that are either written whole or not at all."""

from __future__ import annotations

import io
import os
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["is_standard_output", "write_atomically"]

_MOST_LINKS = 40


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to what standard output of this process is.

    By name, through links, or because standard output was redirected to that very file.
    """
    names = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", f"/proc/{os.getpid()}/fd/1"}
    step = os.path.abspath(path)
    # realpath would go on to what the descriptor leads to, which for a pipe has no name.
    for _ in range(_MOST_LINKS):
        if step in names:
            return True
        try:
            step = os.path.abspath(os.path.join(os.path.dirname(step), os.readlink(step)))
        except OSError:
            break
    try:
        open_file = os.fstat(1)
        return stat.S_ISREG(open_file.st_mode) and os.path.samestat(open_file, os.stat(path))
    except OSError:
        return False


def _write_to_standard_output(write: Callable[[BinaryIO], object]) -> None:
    """Append to the open stream: to open its file anew would cut off what is in it."""
    if sys.stdout is not None:
        sys.stdout.flush()
    if not stat.S_ISREG(os.fstat(1).st_mode):
        with os.fdopen(os.dup(1), "wb") as stream:
            write(stream)
        return
    # Writers of pictures and archives go back, and count from the beginning of their file.
    whole = io.BytesIO()
    write(whole)
    with os.fdopen(os.dup(1), "wb") as stream:
        stream.write(whole.getbuffer())


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Call `write` with a binary file that becomes `path` only if `write` returns.

    A reader of `path` never sees half a file, and an interrupted run leaves the old one. What is
    not a regular file (a pipe, a device) is written directly, and standard output through the
    stream that is open.
    """
    if is_standard_output(path):
        _write_to_standard_output(write)
        return
    target = Path(os.path.realpath(path))
    # The real path of another descriptor on a pipe names nothing that can be opened.
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

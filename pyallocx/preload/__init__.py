"""The recorder: a shared library that lives inside of the recorded program."""

from __future__ import annotations

from pathlib import Path

__all__ = ["library_path"]


def library_path() -> Path:
    """Return where the recorder's library is, for ``LD_PRELOAD``.

    Returns
    -------
    Path
        An absolute path. The dynamic linker reads ``LD_PRELOAD`` as a list: a path with a space or
        a colon in it cannot stand there.

    Raises
    ------
    FileNotFoundError
        If the package was built without it: it exists for Linux on x86-64 and aarch64.
    """
    path = Path(__file__).resolve().with_name("record.so")
    if not path.is_file():
        raise FileNotFoundError(
            f"no recorder in this installation ({path} is not there): it is built for Linux on "
            "x86-64 and aarch64 only"
        )
    return path

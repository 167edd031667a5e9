"""Bytes read once, and what damaged containers raise while they are read."""

from __future__ import annotations

import errno
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final, NoReturn

from pyallocx._core import TraceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 16

METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members of a zip may be packed. zipfile does not bound what one read of the others may \
unpack, or lzma allocate."""


class Stream(io.RawIOBase):
    """Bytes read once, with a look at the first of them."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner = inner
        self._ahead = b""
        self.position = 0

    def head(self) -> bytes:
        """Return the first bytes without consuming them; fewer only where there are no more."""
        while len(self._ahead) < _HEAD_BYTES:
            more = self._inner.read(_HEAD_BYTES - len(self._ahead))
            if not more:
                break
            self._ahead += more
        return self._ahead

    def skip(self, count: int) -> None:
        """Leave out the next bytes, of those that `head` has shown."""
        self._ahead = self._ahead[count:]
        self.position += count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if self._ahead:
            data, self._ahead = self._ahead[: len(view)], self._ahead[len(view) :]
        else:
            data = self._inner.read(len(view))
        view[: len(data)] = data
        self.position += len(data)
        return len(data)


@contextmanager
def damage(name: str, stream: Stream | None = None) -> Iterator[None]:
    """Turn what zipfile, gzip and zlib raise on damaged files into TraceError."""
    try:
        yield
    except TraceError:
        raise
    except OSError as error:
        # BadGzipFile is an OSError without a number; a seek to where a damaged zip points is
        # EINVAL. All others are the system's and pass.
        if error.errno not in (None, errno.EINVAL):
            raise
        _raise_damaged(name, stream, error)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        OverflowError,
        RuntimeError,
        ValueError,
        struct.error,
    ) as error:
        _raise_damaged(name, stream, error)


def _raise_damaged(name: str, stream: Stream | None, error: Exception) -> NoReturn:
    where = f" after {stream.position:,} unpacked bytes" if stream is not None else ""
    raise TraceError(f"{name}: damaged or truncated{where}: {error}") from error

"""Bytes read once, what they are packed in, and what damaged containers raise while read."""

from __future__ import annotations

import bz2
import errno
import gzip
import importlib
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast

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
        self._inner = self.inner = inner
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

    def reads(self, file: IO[bytes]) -> bool:
        """Whether it is this very file that is read, not something in it."""
        return self._inner is file and file.seekable()

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


# What a decompressor may need by itself: the window of zstd, the dictionary of xz. A file that asks
# for more is refused.
_MOST_WINDOW_LOG2: Final = 27
_MOST_LZMA_BYTES: Final = 256 << 20

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_XZ: Final = b"\xfd7zXZ\0"
_BZ2: Final = b"BZh"


class _Decompressor(Protocol):
    """What the standard library's decompressors of bz2, xz and zstd have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Unpacked(io.RawIOBase):
    """What packed bytes hold, a bounded piece at a time; one after another where there are more."""

    def __init__(
        self,
        inner: IO[bytes],
        make: Callable[[], _Decompressor],
        errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self._inner = inner
        self._make = make
        self._errors = errors
        self._one: _Decompressor | None = make()
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Return at most so many bytes, none only at the end."""
        most = min(size, CHUNK_BYTES) if size >= 0 else CHUNK_BYTES
        while self._one is not None and most:
            data = b""
            if self._one.needs_input:
                data = self._ahead or self._inner.read(CHUNK_BYTES)
                self._ahead = b""
                if not data:
                    raise EOFError("the packed data ends before its end is marked")
            try:
                piece = self._one.decompress(data, most)
            except self._errors as error:
                raise ValueError(str(error)) from None
            if self._one.eof:
                self._ahead = self._one.unused_data or self._inner.read(CHUNK_BYTES)
                # Zeros behind a stream of xz are padding.
                self._one = self._make() if self._ahead.strip(b"\0") else None
            if piece:
                return piece
        return b""


class _ByZstandard:
    """A decompressor of the package zstandard, made like those of the standard library.

    Its own does not bound what a call returns, and its streams take a file that is cut off for
    whole. So it gets little at a time: a block of four bytes may hold 128 KiB.
    """

    _PIECE_BYTES: Final = 2048

    def __init__(self, zstandard: Any) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _MOST_WINDOW_LOG2)
        self._inner = decompressor.decompressobj()
        self._input = memoryview(b"")
        self._output = memoryview(b"")

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof) and not self._output

    @property
    def needs_input(self) -> bool:
        return not self._input and not self._output

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + bytes(self._input)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if data:
            self._input = memoryview(data)
        while not self._output and self._input and not self._inner.eof:
            piece = self._input[: self._PIECE_BYTES]
            self._input = self._input[self._PIECE_BYTES :]
            self._output = memoryview(self._inner.decompress(piece))
        most = len(self._output) if max_length < 0 else max_length
        taken, self._output = self._output[:most], self._output[most:]
        return bytes(taken)


def _open_zstd(inner: IO[bytes], name: str) -> _Unpacked:
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        try:
            zstandard = importlib.import_module("zstandard")
        except ImportError:
            raise TraceError(
                f"{name}: this is packed with zstd, which is read with Python 3.14 or the package "
                "zstandard: pip install 'pyallocx[zstd]' (or unpack it with zstd -d)"
            ) from None
        return _Unpacked(inner, lambda: _ByZstandard(zstandard), (zstandard.ZstdError,))
    options = {zstd.DecompressionParameter.window_log_max: _MOST_WINDOW_LOG2}
    return _Unpacked(inner, lambda: zstd.ZstdDecompressor(options=options), (zstd.ZstdError,))


def unpacked(stream: Stream, head: bytes, name: str) -> IO[bytes] | None:
    """Return what a stream holds that is packed without a list of members, or None.

    Such are gzip, zstd, xz and bzip2. Each is read in pieces of bounded length, in bounded memory.
    """
    inner = cast("IO[bytes]", stream)
    opened: io.BufferedIOBase | io.RawIOBase
    if head.startswith(b"\x1f\x8b"):
        opened = gzip.GzipFile(fileobj=io.BufferedReader(stream, CHUNK_BYTES))
    elif head.startswith(_ZSTD):
        opened = _open_zstd(inner, name)
    elif head.startswith(_XZ):
        opened = _Unpacked(inner, lambda: lzma.LZMADecompressor(memlimit=_MOST_LZMA_BYTES))
    elif head.startswith(_BZ2):
        opened = _Unpacked(inner, bz2.BZ2Decompressor)
    else:
        return None
    return cast("IO[bytes]", opened)


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
        lzma.LZMAError,
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

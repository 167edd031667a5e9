"""Trace files: the container of traces, and what foreign traces come wrapped in."""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import json
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from pyallocx._core import TraceError, TraceReader
from pyallocx._files import write_atomically
from pyallocx._progress import progress_bar
from pyallocx.codetraces import FORMATS as CODE_FORMATS
from pyallocx.codetraces import recognise as recognise_code
from pyallocx.codetraces import resembled
from pyallocx.foreign import FORMATS as FOREIGN_FORMATS
from pyallocx.foreign import read as read_foreign
from pyallocx.foreign import recognise as recognise_foreign
from pyallocx.foreign._source import Source
from pyallocx.trace import COLUMN_DTYPES, FORMAT_VERSION, REQUIRED_COLUMNS, Array, Trace

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FORMATS: Final = ("npz", "aosp", "mtrace", *FOREIGN_FORMATS, *CODE_FORMATS)

_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 16
_LONG_BYTES: Final = 64 << 20
_MOST_NESTED: Final = 4
_MOST_METADATA_BYTES: Final = 64 << 20
_MOST_LEVELS: Final = 50
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ALIGN_BYTES: Final = 64
# Deflate packs at most 1032 bytes into one; a member that claims more lies about its size.
_MOST_DEFLATED: Final = 1032

_ADDRESS = rb"(0x[0-9a-fA-F]+|\(nil\))"
_AOSP_LINE: Final = re.compile(
    rb"^[ \t]*\d+:[ \t]*(malloc|calloc|realloc|memalign|free|thread_done)\b", re.MULTILINE
)
_MTRACE_LINE: Final = re.compile(
    rb"^[ \t]*(=[ \t]+(Start|End)|(@ [^\n]* )?([-<] "
    + _ADDRESS
    + rb"|[+>!] "
    + _ADDRESS
    + rb" [0-9a-fA-Fx]+))[ \t\r]*$",
    re.MULTILINE,
)


# ---- writing ------------------------------------------------------------------------------------


def save(trace: Trace, path: str, *, compress: bool) -> None:
    """Write `trace` to `path` whole or not at all; see `Trace.save`."""
    write_atomically(path, lambda file: _write(trace, file, compress))


def _write(trace: Trace, file: IO[bytes], compress: bool) -> None:
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    metadata = {**trace.metadata, "format_version": FORMAT_VERSION}
    with zipfile.ZipFile(file, "w", method) as archive:
        info = zipfile.ZipInfo("metadata.json")
        info.compress_type = method
        info.external_attr = 0o644 << 16
        archive.writestr(info, json.dumps(metadata, indent=1))
        for name, column in trace.columns().items():
            if column is not None:
                _write_column(archive, file, f"{name}.npy", column, method)


def _write_column(
    archive: zipfile.ZipFile, file: IO[bytes], name: str, column: Array, method: int
) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    info.external_attr = 0o644 << 16
    if file.seekable():
        info.extra = _padding(file.tell() + 30 + len(name) + 20)
    column = np.ascontiguousarray(column)
    # With force_zip64 the local header has a field of 20 bytes whatever the size, which the padding
    # relies on.
    with archive.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(
            member, np.lib.format.header_data_from_array_1_0(column)
        )
        data = column.view(np.uint8).data
        for start in range(0, len(data), _CHUNK_BYTES):
            member.write(data[start : start + _CHUNK_BYTES])


def _padding(position: int) -> bytes:
    """Return an extra field that moves the data of a member from `position` to an aligned place."""
    length = -position % _ALIGN_BYTES
    if length < 6:
        length += _ALIGN_BYTES
    # The field that Android's zipalign uses: id, length, alignment, zeros.
    return struct.pack("<HHH", 0xD935, length - 4, _ALIGN_BYTES).ljust(length, b"\0")


# ---- reading: wrappings -------------------------------------------------------------------------


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


T = TypeVar("T")


class Unwrapper(ABC, Generic[T]):
    """One reading of a file that may be wrapped: its options, and what was found on the way in."""

    wanted: str  # what a zip should hold

    def __init__(self, file: IO[bytes], path: str, format: str | None, member: str | None) -> None:
        self.file = file
        # A name that is no UTF-8 could be neither saved nor shown.
        self.base_name = os.fsencode(os.path.basename(path)).decode(errors="replace")
        self.format = format
        self.member = member
        self.members: list[str] = []

    @abstractmethod
    def plain(self, stream: Stream, head: bytes, name: str) -> T:
        """Read what no wrapping is left around; `head` is how it begins."""

    @abstractmethod
    def columns(self, archive: zipfile.ZipFile, file: IO[bytes], name: str) -> T:
        """Read a zip that holds the columns of a trace."""

    def read(self, file: IO[bytes], name: str, depth: int = 0) -> T:
        """Read what is in `file`, unwrapping as often as need be."""
        if depth > _MOST_NESTED:
            raise TraceError(f"{name}: wrapped more than {_MOST_NESTED} times")
        stream = Stream(file)
        with damage(name, stream):
            head = stream.head()
        if not head:
            raise TraceError(f"{name}: the file is empty")
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            if depth == 0 and file.seekable():
                file.seek(0)
                return self.read_zip(file, name, depth)
            # A zip is read from its end, so one inside something else has to be unpacked: to disk.
            with tempfile.TemporaryFile() as unpacked:
                with damage(name, stream):
                    shutil.copyfileobj(stream, unpacked, _CHUNK_BYTES)
                unpacked.seek(0)
                return self.read_zip(unpacked, name, depth)
        if head.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=io.BufferedReader(stream, _CHUNK_BYTES)) as inner:
                return self.read(inner, name, depth + 1)  # type: ignore[arg-type]
        if head.startswith(codecs.BOM_UTF8):
            stream.skip(len(codecs.BOM_UTF8))
            head = stream.head()
        if self.member is not None:
            raise ValueError(f"{name}: member is {self.member!r}, but this is no zip")
        if self.format == "npz":
            raise TraceError(f"{name}: expected an npz, but this is no zip")
        return self.plain(stream, head, name)

    def read_zip(self, file: IO[bytes], name: str, depth: int) -> T:
        """Read what is in a zip."""
        with damage(name):
            archive = zipfile.ZipFile(file)
        with archive:
            # Not is_dir(), which fails on the empty name that a damaged zip may have.
            infos = [i for i in archive.infolist() if not i.filename.endswith("/")]
            names = [info.filename for info in infos]
            if self.member is None and "op.npy" in names and self.format in (None, "npz"):
                return self.columns(archive, file, name)
            wanted = self.member
            if wanted is None and len(infos) != 1:
                raise TraceError(
                    f"{name}: expected a zip with one member or {self.wanted}, this one has "
                    f"{len(infos)} members{_listed(names)}; member= chooses one"
                )
            chosen = [i for i in infos if wanted is None or i.filename == wanted]
            if len(chosen) != 1:
                raise TraceError(
                    f"{name}: expected one member {wanted!r}, found {len(chosen)}{_listed(names)}"
                )
            if chosen[0].compress_type not in _METHODS:
                # zipfile does not bound what one read of the others may unpack, or lzma allocate.
                raise TraceError(
                    f"{name}[{chosen[0].filename}]: expected a member stored or deflated"
                )
            self.member = None
            self.members.append(chosen[0].filename)
            with damage(name):
                inner = archive.open(chosen[0])
            with inner:
                return self.read(inner, f"{name}[{chosen[0].filename}]", depth + 1)


class TraceLoader(Unwrapper[Trace]):
    """One call of `load`."""

    wanted = "a trace"

    def __init__(
        self,
        file: IO[bytes],
        path: str,
        on_error: str,
        format: str | None,
        member: str | None,
        progress: bool | None,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is {on_error!r}, allowed are 'raise' and 'skip'")
        super().__init__(file, path, format, member)
        self.path = path
        self.on_error = on_error
        self.progress = progress

    def plain(self, stream: Stream, head: bytes, name: str) -> Trace:
        """Read a foreign format."""
        return self.read_text(stream, name, self.format or recognise_trace(head, name))

    def columns(self, archive: zipfile.ZipFile, file: IO[bytes], name: str) -> Trace:
        """Read our own format."""
        return _read_npz(archive, file, name, self.base_name, self.progress)

    def read_text(self, stream: Stream, name: str, format: str) -> Trace:
        """Read a foreign format in pieces."""
        if format in FOREIGN_FORMATS:
            return self._read_in_python(stream, name, format)
        skip = self.on_error == "skip"
        code = CODE_FORMATS[format](skip) if format in CODE_FORMATS else None
        reader = TraceReader(format, skip=skip) if code is None else code
        total = os.fstat(self.file.fileno()).st_size
        bar = progress_bar(
            total, f"reading {self.base_name}", "B", wanted=self.progress, long=total >= _LONG_BYTES
        )
        try:
            position = 0
            while True:
                with damage(name, stream):
                    piece = stream.read(_CHUNK_BYTES)
                if not piece:
                    break
                reader.feed(piece)
                if self.file.seekable():
                    now = self.file.tell()
                    bar.update(max(0, now - position))
                    position = max(now, position)
            reader.finish()
        except TraceError as error:
            if str(error).startswith(f"{name}: "):
                raise
            raise TraceError(
                f'{name}: {error} (on_error="skip" drops and counts what is wrong)'
            ) from None
        finally:
            bar.close()
        counts, dropped = reader.counts()
        columns = {
            column: None if memory is None else np.asarray(memory)
            for column, memory in reader.columns().items()
        }
        if sum(dropped.values()) and not len(columns["op"]):  # type: ignore[arg-type]
            if {kind for kind, count in dropped.items() if count} == {"syntax"}:
                raise TraceError(f"{name}: not one line is an event of format {format!r}")
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in dropped.items() if count)
            raise TraceError(f"{name}: nothing is left, every event was dropped: {kinds}")
        metadata: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "reader": format,
            "file": self.base_name,
        }
        if self.members:
            metadata["member"] = "/".join(self.members)
        metadata["counts"] = {kind: count for kind, count in counts.items() if count}
        metadata["dropped"] = {kind: count for kind, count in dropped.items() if count}
        if code is not None:
            metadata |= code.metadata()
        elif format == "aosp":
            metadata["tids"] = cast("TraceReader", reader).threads()
        return Trace._adopt(columns, metadata, self.progress)


    def _read_in_python(self, stream: Stream, name: str, format: str) -> Trace:
        wrapped = stream.inner is not self.file
        source = Source(
            cast("IO[bytes]", stream),
            self.file,
            self.path,
            name,
            self.base_name,
            wrapped,
            self.progress,
            self.members,
        )
        with damage(name, stream):
            return read_foreign(format, source)


def _listed(names: list[str]) -> str:
    if not names:
        return ""
    return f": {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"


class UnknownFormat(TraceError):
    """A file that no reader knows."""


def recognise_trace(head: bytes, name: str) -> str:
    """Tell the foreign formats apart by the first line that one of them can have written."""
    foreign = recognise_foreign(head)
    if foreign is not None:
        return foreign
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(f"{name}: expected plain ASCII text, found UTF-16")
    found = recognise_code(head)
    if b"\0" not in head:
        found += [
            (match.start(), format)
            for format, line in (("aosp", _AOSP_LINE), ("mtrace", _MTRACE_LINE))
            if (match := line.search(head))
        ]
    if found:
        return min(found)[1]
    like = resembled(head)
    if like is not None:
        return like
    raise UnknownFormat(
        f"{name}: expected a trace: {kinds_of_traces()}, plain or inside gzip or zip (profiles "
        f"are read by px.load_profile); this begins with {head[:32]!r}"
    )


def kinds_of_traces() -> str:
    """Return what there is, for messages."""
    return (
        "an npz of pyallocx, memory_replay text (aosp), glibc mtrace text, a trace as csv or "
        "parquet, a capture of memray or a code trace "
        f"({', '.join(CODE_FORMATS)})"
    )


def load(
    path: str, *, on_error: str, format: str | None, member: str | None, progress: bool | None
) -> Trace:
    """Read a trace from a file; see `pyallocx.load`."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}, allowed are 'raise' and 'skip'")
    if format is not None and format not in FORMATS:
        raise ValueError(f"format is {format!r}, allowed are {', '.join(map(repr, FORMATS))}")
    with open(path, "rb") as file:
        return TraceLoader(file, path, on_error, format, member, progress).read(file, path)


# ---- reading: npz -------------------------------------------------------------------------------


def _read_npz(
    archive: zipfile.ZipFile, file: IO[bytes], name: str, base_name: str, progress: bool | None
) -> Trace:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if info.filename in members:
            raise TraceError(f"{name}: two members are called {info.filename!r}")
        members[info.filename] = info
    size = os.fstat(file.fileno()).st_size
    with damage(name):
        metadata = _read_metadata(archive, members.get("metadata.json"), name, base_name)
    columns: dict[str, Array | None] = {}
    for column in COLUMN_DTYPES:
        member = members.get(f"{column}.npy")
        if member is not None:
            label = f"{name}[{member.filename}]"
            with damage(label):
                columns[column] = _read_column(archive, file, size, member, column, label)
        elif column in REQUIRED_COLUMNS:
            raise TraceError(f"{name}: expected a member '{column}.npy', found none")
    lengths = {column: len(array) for column, array in columns.items() if array is not None}
    if len(set(lengths.values())) != 1:
        raise TraceError(f"{name}: expected columns of equal length, found {lengths}")
    try:
        return Trace._adopt(columns, metadata, progress)
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from None
    except RecursionError:
        raise TraceError(f"{name}: metadata.json is nested too deeply") from None


def _read_metadata(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo | None, name: str, base_name: str
) -> dict[str, Any]:
    if info is None:
        return {"format_version": FORMAT_VERSION, "reader": "npz", "file": base_name}
    if info.file_size > _MOST_METADATA_BYTES:
        raise TraceError(f"{name}: metadata.json has {info.file_size:,} bytes, too many")
    try:
        metadata = json.loads(archive.read(info))
        # What cannot be written again (NaN, lone surrogates) is no JSON of ours.
        json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}: metadata.json is no JSON: {error}") from None
    if not isinstance(metadata, dict):
        raise TraceError(f"{name}: metadata.json holds no object")
    if _is_deep(metadata):
        raise TraceError(f"{name}: metadata.json is nested more than {_MOST_LEVELS} levels deep")
    version = metadata.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise TraceError(
            f"{name}: expected format_version 1 to {FORMAT_VERSION}, found {version!r}"
        )
    return metadata


def _is_deep(metadata: object) -> bool:
    """Whether there are too many levels for those who walk metadata by calling themselves."""
    level = [metadata]
    for _ in range(_MOST_LEVELS):
        level = [
            item
            for value in level
            if isinstance(value, (dict, list))
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return any(isinstance(value, (dict, list)) for value in level)


def _read_column(
    archive: zipfile.ZipFile,
    file: IO[bytes],
    size: int,
    info: zipfile.ZipInfo,
    column: str,
    label: str,
) -> Array:
    stored = info.compress_type == zipfile.ZIP_STORED
    if info.compress_type not in _METHODS:
        raise TraceError(f"{label}: expected a member stored or deflated")
    if info.flag_bits & 1:
        raise TraceError(f"{label}: the member is encrypted")
    if info.header_offset + info.compress_size > size:
        raise TraceError(f"{label}: the file ends before the member does")
    if info.file_size > info.compress_size * (1 if stored else _MOST_DEFLATED) + 64:
        raise TraceError(
            f"{label}: {info.compress_size:,} bytes cannot hold the {info.file_size:,} claimed"
        )
    with cast("zipfile.ZipExtFile", archive.open(info)) as member:
        events, dtype = _read_npy_header(member, column, label)
        start = member.tell()
        if start + events * dtype.itemsize != info.file_size:
            raise TraceError(
                f"{label}: {events:,} events of {dtype} need {start + events * dtype.itemsize:,} "
                f"bytes, the member has {info.file_size:,}"
            )
        if stored and events and dtype.isnative:
            offset = _data_offset(file, info, size, label) + start
            if offset % dtype.itemsize == 0:
                mapped = np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=(events,))
                return mapped.view(np.ndarray)
        # zipfile compares the checksum when the last byte is read.
        array: npt.NDArray[Any] = np.empty(events, dtype=dtype)
        view = array.view(np.uint8).data
        done = 0
        while done < len(view):
            got = member.readinto(view[done : done + _CHUNK_BYTES])
            if not got:
                raise TraceError(f"{label}: ends after {start + done:,} bytes")
            done += got
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_npy_header(
    member: zipfile.ZipExtFile, column: str, label: str
) -> tuple[int, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"version {version}, expected (1, 0)")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    except (zipfile.BadZipFile, zlib.error):
        raise
    except (Exception, MemoryError) as error:
        # The header is a Python literal: broken ones raise whatever the tokenizer and parser do.
        text = str(error)
        if "allow_pickle" in text:
            # NumPy's advice is to trust the file.
            text = "it is too long"
        raise TraceError(f"{label}: no header of an npy file: {text}") from None
    allowed = COLUMN_DTYPES[column]
    if dtype.kind != "u" or f"u{dtype.itemsize}" not in allowed:
        wanted = " or ".join(np.dtype(name).name for name in allowed)
        raise TraceError(f"{label}: column '{column}' must hold {wanted}, found {dtype.name}")
    if len(shape) != 1:
        raise TraceError(f"{label}: column '{column}' must have one dimension, found {len(shape)}")
    return int(shape[0]), dtype


def _data_offset(file: IO[bytes], info: zipfile.ZipInfo, size: int, label: str) -> int:
    """Return where in the file the bytes of a stored member begin."""
    file.seek(info.header_offset)
    header = file.read(30)
    if len(header) != 30 or not header.startswith(b"PK\x03\x04"):
        raise TraceError(f"{label}: no member begins at byte {info.header_offset:,}")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    offset: int = info.header_offset + 30 + name_length + extra_length
    if info.compress_size != info.file_size or offset + info.file_size > size:
        raise TraceError(f"{label}: the file ends before the member does")
    return offset

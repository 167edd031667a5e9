"""The container of traces: an npz file, written whole and read without trust."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np

from pyallocx._asides import is_name
from pyallocx._columns import COLUMN_DTYPES, REQUIRED_COLUMNS, Array
from pyallocx._core import TraceError
from pyallocx._files import write_atomically
from pyallocx._packing import (
    Packed,
    Unpacker,
    empty_numbers,
    encodings_of,
    joined,
    packed_columns,
    planes_of,
)
from pyallocx._progress import Bar, progress_bar
from pyallocx._streams import CHUNK_BYTES, METHODS, damage
from pyallocx.trace import FORMAT_VERSION, Trace

_MOST_METADATA_BYTES: Final = 64 << 20
_MOST_LEVELS: Final = 50
_ALIGN_BYTES: Final = 64
# Deflate packs at most 1032 bytes into one; a member that claims more lies about its size.
_MOST_DEFLATED: Final = 1032
_ASIDE: Final = "aside."
_LONG_BYTES: Final = 64 << 20

PACKED_VERSION: Final = 2
"""The version of a file that has packed columns. One without them is of `FORMAT_VERSION`, so that
older versions of this package read it."""

_ANY_UNSIGNED: Final = ("u1", "u2", "u4", "u8")
_ASIDE_DTYPES: Final = {"event": ("u8",), "object": ("u4", "u8")}


# ---- writing ------------------------------------------------------------------------------------


def save(trace: Trace, path: str, *, compress: bool, progress: bool | None) -> None:
    """Write `trace` to `path` whole or not at all; see `Trace.save`."""
    name = os.path.basename(path)

    def write(file: IO[bytes]) -> None:
        total = sum(column.nbytes for column in _all_columns(trace))
        bar = progress_bar(
            total, f"writing {name}", "B", wanted=progress, long=total >= _LONG_BYTES
        )
        try:
            _write(trace, file, compress, bar)
        finally:
            bar.close()

    write_atomically(path, write)


def _all_columns(trace: Trace) -> Iterator[Array]:
    yield from (column for column in trace.columns().values() if column is not None)
    for aside in trace.asides.values():
        yield from aside.values()


def _plain_columns(trace: Trace) -> Iterator[tuple[str, Array]]:
    for name, column in trace.columns().items():
        if column is not None:
            yield name, column
    for aside, columns in trace.asides.items():
        for name, column in columns.items():
            yield f"{_ASIDE}{aside}.{name}", column


def _write(trace: Trace, file: IO[bytes], compress: bool, bar: Bar) -> None:
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    version = PACKED_VERSION if compress else FORMAT_VERSION
    metadata = {**trace.metadata, "format_version": version}
    with zipfile.ZipFile(file, "w", method, compresslevel=6) as archive:
        info = zipfile.ZipInfo("metadata.json")
        info.compress_type = method
        info.external_attr = 0o644 << 16
        archive.writestr(info, json.dumps(metadata, indent=1))
        for item in packed_columns(trace) if compress else _plain_columns(trace):
            pieces: Iterator[bytes] | Iterator[memoryview]
            if isinstance(item, Packed):
                width, pieces = planes_of(item)
                header = {"descr": "|u1", "fortran_order": False, "shape": (width, item.length)}
                share = item.bytes_of_column / max(1, width * item.length)
            else:
                column = np.ascontiguousarray(item[1])
                header = np.lib.format.header_data_from_array_1_0(column)
                pieces = _pieces(column)
                share = 1.0
            _write_member(archive, file, f"{item[0]}.npy", method, header, pieces, bar, share)


def _pieces(column: Array) -> Iterator[memoryview]:
    data = column.view(np.uint8).data
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def _write_member(
    archive: zipfile.ZipFile,
    file: IO[bytes],
    name: str,
    method: int,
    header: dict[str, Any],
    pieces: Iterator[bytes] | Iterator[memoryview],
    bar: Bar,
    share: float,
) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    info.external_attr = 0o644 << 16
    if file.seekable():
        info.extra = _padding(file.tell() + 30 + len(name) + 20)
    # With force_zip64 the local header has a field of 20 bytes whatever the size, which the padding
    # relies on.
    with archive.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for piece in pieces:
            member.write(piece)
            bar.update(round(len(piece) * share))


def _padding(position: int) -> bytes:
    """Return an extra field that moves the data of a member from `position` to an aligned place."""
    length = -position % _ALIGN_BYTES
    if length < 6:
        length += _ALIGN_BYTES
    # The field that Android's zipalign uses: id, length, alignment, zeros.
    return struct.pack("<HHH", 0xD935, length - 4, _ALIGN_BYTES).ljust(length, b"\0")


# ---- reading ------------------------------------------------------------------------------------


def read_npz(
    archive: zipfile.ZipFile, file: IO[bytes], name: str, base_name: str, progress: bool | None
) -> Trace:
    """Read the columns of a trace; `name` is that of the file in messages."""
    return _Reading(archive, file, name, base_name, progress).trace()


class _Reading:
    """One npz on its way to being a trace."""

    def __init__(
        self,
        archive: zipfile.ZipFile,
        file: IO[bytes],
        name: str,
        base_name: str,
        progress: bool | None,
    ) -> None:
        self.archive = archive
        self.file = file
        self.name = name
        self.base_name = base_name
        self.progress = progress
        self.size = os.fstat(file.fileno()).st_size
        self.members: dict[str, zipfile.ZipInfo] = {}
        self.columns: dict[str, Array | None] = {}
        self.unpack: Unpacker | None = None

    def trace(self) -> Trace:
        for info in self.archive.infolist():
            if info.filename in self.members:
                raise TraceError(f"{self.name}: two members are called {info.filename!r}")
            self.members[info.filename] = info
        with damage(self.name):
            metadata = _read_metadata(
                self.archive, self.members.get("metadata.json"), self.name, self.base_name
            )
        bar = progress_bar(
            self.size,
            f"reading {self.base_name}",
            "B",
            wanted=self.progress,
            long=self.size >= _LONG_BYTES,
        )
        try:
            found, asides = _sorted_members(self.members, self.name)
            self.read_columns(found, bar)
            beside = {aside: self.read_aside(aside, found, bar) for aside, found in asides.items()}
        finally:
            bar.close()
        try:
            return Trace._adopt(self.columns, metadata, self.progress, beside)
        except TraceError as error:
            raise TraceError(f"{self.name}: {error}") from None
        except RecursionError:
            raise TraceError(f"{self.name}: metadata.json is nested too deeply") from None

    def read_columns(self, found: dict[str, _Member], bar: Bar) -> None:
        for column in REQUIRED_COLUMNS:
            if column not in found:
                raise TraceError(f"{self.name}: expected a member '{column}.npy', found none")
        for column, dtypes in COLUMN_DTYPES.items():
            if column in found:
                self.columns[column] = self.read_member(found[column], column, dtypes)
                bar.update(found[column].info.compress_size)
        lengths = {c: len(array) for c, array in self.columns.items() if array is not None}
        if len(set(lengths.values())) != 1:
            raise TraceError(f"{self.name}: expected columns of equal length, found {lengths}")

    def read_aside(self, aside: str, found: dict[str, _Member], bar: Bar) -> dict[str, Array]:
        columns: dict[str, Array] = {}
        # Others are told by what is in the event that a row stands before.
        for column in sorted(found, key=lambda column: column != "event"):
            dtypes = _ASIDE_DTYPES.get(column, _ANY_UNSIGNED)
            columns[column] = self.read_member(found[column], column, dtypes, columns.get("event"))
            bar.update(found[column].info.compress_size)
        # As they were: the order of columns is the writer's.
        return {column: columns[column] for column in found}

    def read_member(
        self,
        found: _Member,
        column: str,
        dtypes: tuple[str, ...],
        event: Array | None = None,
    ) -> Array:
        label = f"{self.name}[{found.info.filename}]"
        with damage(label):
            if not found.encoding:
                return _read_column(
                    self.archive, self.file, self.size, found.info, column, dtypes, label
                )
            if found.dtype not in dtypes:
                wanted = " or ".join(np.dtype(name).name for name in dtypes)
                raise TraceError(f"{label}: column '{column}' must hold {wanted}")
            numbers = _read_planes(
                self.archive, self.size, found.info, np.dtype(found.dtype), label
            )
            if found.beside:
                return self.unpacker(label).row(found.encoding, numbers, event, label, self.columns)
            return self.unpacker(label).column(found.encoding, numbers, label, self.columns)

    def unpacker(self, label: str) -> Unpacker:
        op = self.columns.get("op")
        if self.unpack is None:
            if op is None:
                raise TraceError(f"{label}: expected column 'op' as it is, not packed")
            self.unpack = Unpacker(op)
        return self.unpack


class _Member(NamedTuple):
    """A member that holds a column, and what its name says of it."""

    info: zipfile.ZipInfo
    dtype: str
    encoding: str  # empty: the column as it is
    beside: bool


def _sorted_members(
    members: dict[str, zipfile.ZipInfo], name: str
) -> tuple[dict[str, _Member], dict[str, dict[str, _Member]]]:
    """Tell by their names which members are columns of the trace, and which of an aside."""
    columns: dict[str, _Member] = {}
    asides: dict[str, dict[str, _Member]] = {}
    for filename, info in members.items():
        label = f"{name}[{filename}]"
        beside = filename.startswith(_ASIDE)
        words = filename.removeprefix(_ASIDE).removesuffix(".npy").split(".")
        aside = words.pop(0) if beside else ""
        if beside:
            if (
                not filename.endswith(".npy")
                or not words
                or not all(map(is_name, (aside, words[0])))
            ):
                raise TraceError(f"{label}: expected a name like {_ASIDE}NAME.COLUMN.npy")
        elif not filename.endswith(".npy") or words[0] not in COLUMN_DTYPES:
            continue
        column, *rest = words
        if rest and (len(rest) != 2 or rest[1] not in encodings_of(column, beside)):
            known = ", ".join(encodings_of(column, beside))
            raise TraceError(
                f"{label}: packed in a way that is not known here; a column '{column}' is "
                f"COLUMN.npy or COLUMN.DTYPE.ENCODING.npy with {known}"
            )
        group = asides.setdefault(aside, {}) if beside else columns
        if column in group:
            raise TraceError(
                f"{label}: column '{column}' is in {group[column].info.filename!r}, too"
            )
        dtype, encoding = rest or ("", "")
        group[column] = _Member(info, dtype, encoding, beside)
    return columns, asides


def _read_planes(
    archive: zipfile.ZipFile,
    size: int,
    info: zipfile.ZipInfo,
    dtype: np.dtype[Any],
    label: str,
) -> Array:
    """Read the numbers of a packed column: a plane for each byte, the lowest first."""
    _check_member(info, size, label)
    with cast("zipfile.ZipExtFile", archive.open(info)) as member:
        shape, found, fortran = _read_npy_header(member, label)
        if found != np.uint8 or len(shape) != 2 or fortran:
            raise TraceError(f"{label}: expected planes: uint8 in 2 dimensions, row by row")
        planes, count = shape
        # At least one, so that nothing small claims to be long.
        if not 1 <= planes <= dtype.itemsize:
            raise TraceError(f"{label}: found {planes} planes, allowed are 1 to {dtype.itemsize}")
        _check_length(planes * count, "bytes", member.tell(), info, label)
        numbers = empty_numbers(count, dtype)
        buffer = bytearray(min(CHUNK_BYTES, max(1, count)))
        view = memoryview(buffer)
        for plane in range(planes):
            done = 0
            while done < count:
                got = member.readinto(view[: count - done])
                if not got:
                    raise TraceError(f"{label}: ends in plane {plane}")
                numbers[done : done + got, plane] = np.frombuffer(view[:got], dtype=np.uint8)
                done += got
        # zipfile compares the checksum when it is asked for more than there is.
        member.read(1)
    return joined(numbers, dtype)


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
    if not isinstance(version, int) or not 1 <= version <= PACKED_VERSION:
        newer = isinstance(version, int) and version > PACKED_VERSION
        raise TraceError(
            f"{name}: expected format_version 1 to {PACKED_VERSION}, found {version!r}"
            + (", which a newer pyallocx wrote" if newer else "")
        )
    # How the file was packed says nothing of the trace.
    return {**metadata, "format_version": FORMAT_VERSION}


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
    allowed: tuple[str, ...],
    label: str,
) -> Array:
    stored = info.compress_type == zipfile.ZIP_STORED
    _check_member(info, size, label)
    with cast("zipfile.ZipExtFile", archive.open(info)) as member:
        shape, dtype, _ = _read_npy_header(member, label)
        if dtype.kind != "u" or f"u{dtype.itemsize}" not in allowed:
            wanted = " or ".join(np.dtype(name).name for name in allowed)
            raise TraceError(f"{label}: column '{column}' must hold {wanted}, found {dtype.name}")
        if len(shape) != 1:
            raise TraceError(
                f"{label}: column '{column}' must have one dimension, found {len(shape)}"
            )
        events, start = shape[0], member.tell()
        _check_length(events * dtype.itemsize, f"events of {dtype}", start, info, label, events)
        if stored and events and dtype.isnative:
            offset = _data_offset(file, info, size, label) + start
            if offset % dtype.itemsize == 0:
                mapped = np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=(events,))
                return mapped.view(np.ndarray)
        # zipfile compares the checksum when the last byte is read.
        array: Array = np.empty(events, dtype=dtype)
        view = array.view(np.uint8).data
        done = 0
        while done < len(view):
            got = member.readinto(view[done : done + CHUNK_BYTES])
            if not got:
                raise TraceError(f"{label}: ends after {start + done:,} bytes")
            done += got
    return array.astype(dtype.newbyteorder("="), copy=False)


def _check_member(info: zipfile.ZipInfo, size: int, label: str) -> None:
    """Refuse what a member of a file of `size` bytes cannot be, before anything is allocated."""
    stored = info.compress_type == zipfile.ZIP_STORED
    if info.compress_type not in METHODS:
        raise TraceError(f"{label}: expected a member stored or deflated")
    if info.flag_bits & 1:
        raise TraceError(f"{label}: the member is encrypted")
    if info.header_offset + info.compress_size > size:
        raise TraceError(f"{label}: the file ends before the member does")
    if info.file_size > info.compress_size * (1 if stored else _MOST_DEFLATED) + 64:
        raise TraceError(
            f"{label}: {info.compress_size:,} bytes cannot hold the {info.file_size:,} claimed"
        )


def _check_length(
    needed: int, what: str, start: int, info: zipfile.ZipInfo, label: str, items: int | None = None
) -> None:
    if start + needed != info.file_size:
        raise TraceError(
            f"{label}: {needed if items is None else items:,} {what} need {start + needed:,} "
            f"bytes, the member has {info.file_size:,}"
        )


def _read_npy_header(
    member: zipfile.ZipExtFile, label: str
) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    try:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"version {version}, expected (1, 0)")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    except (zipfile.BadZipFile, zlib.error):
        raise
    except (Exception, MemoryError) as error:
        # The header is a Python literal: broken ones raise whatever the tokenizer and parser do.
        text = str(error)
        if "allow_pickle" in text:
            # NumPy's advice is to trust the file.
            text = "it is too long"
        raise TraceError(f"{label}: no header of an npy file: {text}") from None
    return tuple(map(int, shape)), dtype, bool(fortran)


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

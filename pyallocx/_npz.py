"""The container of traces: an npz file, written whole and read without trust."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from typing import IO, Any, Final, cast

import numpy as np
import numpy.typing as npt

from pyallocx._asides import is_name
from pyallocx._columns import COLUMN_DTYPES, REQUIRED_COLUMNS, Array
from pyallocx._core import TraceError
from pyallocx._files import write_atomically
from pyallocx._streams import CHUNK_BYTES, METHODS, damage
from pyallocx.trace import FORMAT_VERSION, Trace

_MOST_METADATA_BYTES: Final = 64 << 20
_MOST_LEVELS: Final = 50
_ALIGN_BYTES: Final = 64
# Deflate packs at most 1032 bytes into one; a member that claims more lies about its size.
_MOST_DEFLATED: Final = 1032
_ASIDE: Final = "aside."
_ANY_UNSIGNED: Final = ("u1", "u2", "u4", "u8")
_ASIDE_DTYPES: Final = {"event": ("u8",), "object": ("u4", "u8")}


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
        for aside, columns in trace.asides.items():
            for name, column in columns.items():
                _write_column(archive, file, f"{_ASIDE}{aside}.{name}.npy", column, method)


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
        for start in range(0, len(data), CHUNK_BYTES):
            member.write(data[start : start + CHUNK_BYTES])


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
                columns[column] = _read_column(
                    archive, file, size, member, column, COLUMN_DTYPES[column], label
                )
        elif column in REQUIRED_COLUMNS:
            raise TraceError(f"{name}: expected a member '{column}.npy', found none")
    lengths = {column: len(array) for column, array in columns.items() if array is not None}
    if len(set(lengths.values())) != 1:
        raise TraceError(f"{name}: expected columns of equal length, found {lengths}")
    asides = _read_asides(archive, file, size, members, name)
    try:
        return Trace._adopt(columns, metadata, progress, asides)
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from None
    except RecursionError:
        raise TraceError(f"{name}: metadata.json is nested too deeply") from None


def _read_asides(
    archive: zipfile.ZipFile,
    file: IO[bytes],
    size: int,
    members: dict[str, zipfile.ZipInfo],
    name: str,
) -> dict[str, dict[str, Array]]:
    asides: dict[str, dict[str, Array]] = {}
    for filename, member in members.items():
        if not filename.startswith(_ASIDE):
            continue
        label = f"{name}[{filename}]"
        aside, _, column = filename.removeprefix(_ASIDE).removesuffix(".npy").partition(".")
        if not filename.endswith(".npy") or not is_name(aside) or not is_name(column):
            raise TraceError(f"{label}: expected a name like aside.NAME.COLUMN.npy")
        allowed = _ASIDE_DTYPES.get(column, _ANY_UNSIGNED)
        with damage(label):
            asides.setdefault(aside, {})[column] = _read_column(
                archive, file, size, member, column, allowed, label
            )
    return asides


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
    allowed: tuple[str, ...],
    label: str,
) -> Array:
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
    with cast("zipfile.ZipExtFile", archive.open(info)) as member:
        events, dtype = _read_npy_header(member, column, allowed, label)
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
            got = member.readinto(view[done : done + CHUNK_BYTES])
            if not got:
                raise TraceError(f"{label}: ends after {start + done:,} bytes")
            done += got
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_npy_header(
    member: zipfile.ZipExtFile, column: str, allowed: tuple[str, ...], label: str
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

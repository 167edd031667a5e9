"""Trace files: which format a file is in, and what it comes wrapped in."""

from __future__ import annotations

import codecs
import os
import shutil
import tempfile
import zipfile
from abc import ABC, abstractmethod
from typing import IO, Any, Final, Generic, TypeVar, cast

import numpy as np

from pyallocx._core import TraceError, TraceReader
from pyallocx._npz import read_npz
from pyallocx._progress import progress_bar
from pyallocx._rawlog import MAGIC as RAWLOG_MAGIC
from pyallocx._rawlog import read_rawlog
from pyallocx._recognise import recognise_text, resembled_text
from pyallocx._streams import CHUNK_BYTES, METHODS, Stream, damage, unpacked
from pyallocx.codetraces import FORMATS as CODE_FORMATS
from pyallocx.codetraces import recognise as recognise_code
from pyallocx.codetraces import resembled
from pyallocx.foreign import FORMATS as FOREIGN_FORMATS
from pyallocx.foreign import read as read_foreign
from pyallocx.foreign import recognise as recognise_foreign
from pyallocx.foreign._source import Source
from pyallocx.trace import FORMAT_VERSION, Trace

FORMATS: Final = ("npz", "rawlog", *TraceReader.formats(), *FOREIGN_FORMATS, *CODE_FORMATS)

_LONG_BYTES: Final = 64 << 20
_MOST_NESTED: Final = 4

# More names than this are not kept: they would weigh more than the events.
_MOST_NAMES: Final = 1 << 20

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
            with tempfile.TemporaryFile() as whole:
                with damage(name, stream):
                    shutil.copyfileobj(stream, whole, CHUNK_BYTES)
                whole.seek(0)
                return self.read_zip(whole, name, depth)
        inner = unpacked(stream, head, name)
        if inner is not None:
            with inner:
                return self.read(inner, name, depth + 1)
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
            if chosen[0].compress_type not in METHODS:
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
        return read_npz(archive, file, name, self.base_name, self.progress)

    def read_log(self, stream: Stream, name: str) -> Trace:
        """Read a raw log of the recorder, which is read by position."""
        skip = self.on_error == "skip"
        if not self.members and stream.reads(self.file):
            return read_rawlog(self.file, name, self.base_name, skip=skip, progress=self.progress)
        with tempfile.TemporaryFile() as whole:
            with damage(name, stream):
                shutil.copyfileobj(stream, whole, CHUNK_BYTES)
            whole.flush()
            return read_rawlog(whole, name, self.base_name, skip=skip, progress=self.progress)

    def read_text(self, stream: Stream, name: str, format: str) -> Trace:
        """Read a foreign format in pieces."""
        if format == "rawlog":
            return self.read_log(stream, name)
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
                    piece = stream.read(CHUNK_BYTES)
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
        else:
            metadata |= _told_by(cast("TraceReader", reader), format)
        return Trace._adopt(columns, metadata, self.progress)

    def _read_in_python(self, stream: Stream, name: str, format: str) -> Trace:
        source = Source(
            cast("IO[bytes]", stream),
            self.file,
            self.path,
            name,
            self.base_name,
            stream.inner is not self.file,
            format,
            self.progress,
            self.members,
        )
        with damage(name, stream):
            return read_foreign(source)


def _told_by(reader: TraceReader, format: str) -> dict[str, Any]:
    """Return what a reader knows beside columns and counts."""
    told: dict[str, Any] = {}
    threads = reader.threads()
    if format == "aosp" or (format == "ltrace" and threads not in ([], [0])):
        told["tids"] = threads
    elif format == "logalloc":
        told["pids"] = [number >> 32 for number in threads]
        told["tids"] = [number & 0xFFFFFFFF for number in threads]
    elif format in ("valgrind", "utrace"):
        told["pids"] = threads
    elif format in ("heaptrack", "heaptrack_interpreted"):
        names = reader.key_names()
        if len(names) <= _MOST_NAMES:
            told["key_names"] = names
        else:
            told["key_names_left_out"] = len(names)
        if format == "heaptrack_interpreted":
            told["identity"] = "a free ends the last object of its size and call stack that lives"
    return told


def _listed(names: list[str]) -> str:
    if not names:
        return ""
    return f": {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"


class UnknownFormat(TraceError):
    """A file that no reader knows."""


def recognise_trace(head: bytes, name: str) -> str:
    """Tell the foreign formats apart by the first line that one of them can have written."""
    if head.startswith(RAWLOG_MAGIC):
        return "rawlog"
    foreign = recognise_foreign(head)
    if foreign is not None:
        return foreign
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(f"{name}: expected plain ASCII text, found UTF-16")
    # Of two that can have written the same line, the first listed.
    found = recognise_text(head) + recognise_code(head)
    best = min(found, key=lambda one: one[0])[1] if found else None
    # Any name makes a line of a perf map, such as a call with a mistake in it.
    if best is None or best == "perfmap":
        best = resembled_text(head) or best or resembled(head)
    if best is not None:
        return best
    raise UnknownFormat(
        f"{name}: this begins with {head[:32]!r}; expected a trace of a format that "
        f"{LISTED} (profiles are read by px.load_profile)"
    )


LISTED: Final = "`pyallocx formats` lists"
"""Where all formats are, for messages."""


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

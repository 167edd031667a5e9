"""What a reader in Python gets: a file that may be wrapped, its name, progress."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final, NoReturn

from pyallocx._columns import Array
from pyallocx._core import TraceError
from pyallocx._progress import Bar, progress_bar
from pyallocx.trace import FORMAT_VERSION, Trace

__all__ = ["Source"]

_CHUNK_BYTES: Final = 1 << 20
_LONG_BYTES: Final = 64 << 20


@dataclass
class Source:
    """One reading of one file."""

    stream: IO[bytes]
    """What is in the file, unwrapped; `file` itself where nothing is wrapped around."""
    file: IO[bytes]
    path: str
    name: str
    """The file, and the member inside, for messages."""
    base_name: str
    wrapped: bool
    format: str
    progress: bool | None = None
    members: list[str] = field(default_factory=list)

    def fail(self, text: object) -> NoReturn:
        """Refuse the file."""
        raise TraceError(f"{self.name}: {text}")

    def pieces(self) -> Iterator[bytes]:
        """Yield what is in the file, with progress in bytes of the file."""
        total = os.fstat(self.file.fileno()).st_size
        with self.bar(total, "B", total >= _LONG_BYTES) as bar:
            position = 0
            while piece := self.stream.read(_CHUNK_BYTES):
                yield piece
                if self.file.seekable():
                    now = self.file.tell()
                    bar.update(max(0, now - position))
                    position = max(now, position)

    @contextmanager
    def bar(self, total: int, unit: str, long: bool) -> Iterator[Bar]:
        """Show progress."""
        bar = progress_bar(
            total, f"reading {self.base_name}", unit, wanted=self.progress, long=long
        )
        try:
            yield bar
        finally:
            bar.close()

    @contextmanager
    def on_disk(self) -> Iterator[str]:
        """Give the path of a file with what is in the stream, for those who read no stream."""
        if not self.wrapped and os.path.isfile(self.path):
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="pyallocx-") as unpacked:
            for piece in self.pieces():
                unpacked.write(piece)
            unpacked.flush()
            yield unpacked.name

    def trace(
        self,
        columns: Mapping[str, Array | None],
        metadata: Mapping[str, Any],
        asides: Mapping[str, Mapping[str, Array]] | None = None,
    ) -> Trace:
        """Make the trace, which checks the events; `metadata` is what the format adds."""
        about = {
            "format_version": FORMAT_VERSION,
            "reader": self.format,
            "file": self.base_name,
            **({"member": "/".join(self.members)} if self.members else {}),
            **metadata,
        }
        try:
            return Trace._adopt(columns, about, self.progress, asides)
        except (TraceError, RecursionError) as error:
            self.fail(error)

"""memray's captures, by memray's own reader (extra ``memray``).

memray records one event per allocation and per free, in order, without times. What it does not say
is inferred, and counted in ``metadata["counts"]``:

- A realloc is two records: the free of the old address, the allocation of the new one. Where they
  follow each other on one thread they are one realloc here (``reallocs_paired``); a free that a
  realloc of NULL happens to follow cannot be told from that.
- Frees of what was allocated before the recording are left out (``frees_of_untracked``).
- An allocation at an address that is live means that memray did not see the free; it is put before
  that allocation (``frees_inferred``).
- Ranges of mmap and munmap are no objects: they are in the aside ``maps`` (call 0 and 1), and
  counted (``mmaps``, ``munmaps``).

Requests of Python's own allocator are there where memray recorded them (``--trace-python-
allocators``); those count as what they ask for, such as malloc. The key is the line that
asked: the top frame in Python, else in C where memray has it; ``metadata["key_names"]`` has their
names. A free has the key of its object. Alignments are not recorded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from pyallocx._columns import COLUMN_DTYPES, Array
from pyallocx._core import CALL_NAMES, TraceError
from pyallocx.foreign._source import Source
from pyallocx.trace import OP_ALLOC, OP_FREE, OP_REALLOC, Trace, load

__all__ = ["read", "recognise"]

# Captures are one frame of LZ4 or plain.
_BEGINNING: Final = re.compile(rb"memray\0|\x04\x22\x4d\x18.{3,24}memray\0", re.DOTALL)
_BAR_RECORDS: Final = 1 << 15
_LONG_RECORDS: Final = 1_000_000
_COUNTS: Final = ("reallocs_paired", "frees_of_untracked", "frees_inferred", "mmaps", "munmaps")
_MAPS: Final = {"MMAP": "mmaps", "MUNMAP": "munmaps"}
_CHILD: Final = f"import sys; from {__name__} import main; main(sys.argv[1:])"
_MADE: Final = "trace.npz"
_ERROR: Final = "error.txt"
_MAP_DTYPES: Final = {
    "event": "u8",
    "thread": "u4",
    "call": "u1",
    "address": "u8",
    "size_bytes": "u8",
}
_FREE: Final = CALL_NAMES.index("free")


def recognise(head: bytes) -> bool:
    """Whether a file begins as memray's captures do."""
    return _BEGINNING.match(head[:64]) is not None


def read(source: Source) -> Trace:
    """Read all records, in a process of its own: a damaged file may kill memray's reader."""
    if importlib.util.find_spec("memray") is None:
        raise ImportError("a capture of memray needs memray: pip install 'pyallocx[memray]'")
    with (
        source.on_disk() as path,
        tempfile.TemporaryDirectory(prefix="pyallocx-") as folder,
    ):
        code, complaint = _run_child(source, path, folder)
        made, error = Path(folder, _MADE), Path(folder, _ERROR)
        if error.exists():
            raise TraceError(error.read_text("utf-8"))
        if code or not made.exists():
            how = f"died ({signal.Signals(-code).name})" if code < 0 else "failed"
            source.fail(f"memray's reader {how}, so the file is damaged{complaint}")
        mapped = load(made, progress=False)
        # What is mapped would keep the file on disk.
        columns = {n: None if c is None else np.array(c) for n, c in mapped.columns().items()}
        asides = {
            name: {n: np.array(c) for n, c in aside.items()}
            for name, aside in mapped.asides.items()
        }
    return Trace._adopt(columns, mapped.metadata, False, asides)


def _run_child(source: Source, path: str, folder: str) -> tuple[int, str]:
    """Read `path` in another process; returns its exit code, and what it complained of last."""
    arguments = [path, folder, source.name, source.base_name, json.dumps(source.members)]
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as child,
    ):
        assert child.stdout is not None
        try:
            total = int(child.stdout.readline() or b"0")
            with source.bar(total, " records", total >= _LONG_RECORDS) as bar:
                for line in child.stdout:
                    bar.update(int(line))
            code = child.wait()
        finally:
            child.kill()
        complaints.seek(0)
        last = complaints.read()[-2000:].decode("utf-8", "replace").strip().splitlines()[-1:]
        return code, "".join(f" ({line[:200]})" for line in last)


def main(arguments: list[str]) -> None:
    """Read a capture, and leave a trace or an error in a folder; prints how far it is."""
    path, folder, name, base_name, members = arguments
    nothing: Any = None
    source = Source(nothing, nothing, path, name, base_name, False, "memray")
    source.members = json.loads(members)
    memray = importlib.import_module("memray")
    try:
        with contextlib.closing(memray.FileReader(path)) as file:
            trace = _Records(source, memray, file).read(lambda n: print(n, flush=True))
        trace.save(Path(folder, _MADE), compress=False)
    except (OSError, ValueError, RuntimeError, NotImplementedError) as error:
        text = str(error)
        if not isinstance(error, TraceError):
            text = f"{name}: memray cannot read it as a trace: {error}"
        Path(folder, _ERROR).write_text(text, "utf-8", "replace")


class _Records:
    """The events of one capture while they are read."""

    def __init__(self, source: Source, memray: Any, file: Any) -> None:
        self.source = source
        self.file = file
        self.kinds = {int(kind): kind.name for kind in memray.AllocatorType}
        self.op = array("B")
        self.call = array("B")
        self.object = array("Q")
        self.size = array("Q")
        self.thread = array("L")
        self.key = array("L")
        self.live: dict[int, tuple[int, int]] = {}
        self.objects = 0
        self.threads: dict[int, int] = {}
        self.keys: dict[str, int] = {}
        self.key_of_stack: dict[tuple[int, int], int] = {}
        self.maps = {name: array("Q") for name in _MAP_DTYPES}
        self.counts = dict.fromkeys(("records", *_COUNTS), 0)

    def read(self, tell: Callable[[int], object] = lambda n: None) -> Trace:
        """Read them; `tell` is told how many there are, then how many more are done."""
        about = self.file.metadata
        claimed = int(about.total_allocations)
        tell(claimed)
        self._walk(tell)
        records = self.counts["records"]
        if claimed and records != claimed:
            self.source.fail(f"ends after {records:,} records of {claimed:,}")
        arrays: dict[str, Any] = {
            "op": self.op,
            "object": self.object,
            "size_bytes": self.size,
            "thread": self.thread,
            "key": self.key,
            "call": self.call,
        }
        columns: dict[str, Array | None] = {
            # Of the widths of objects the last holds all.
            name: np.array(values, dtype=COLUMN_DTYPES[name][-1])
            for name, values in arrays.items()
        }
        maps = {name: np.array(self.maps[name], dtype=d) for name, d in _MAP_DTYPES.items()}
        metadata = {
            "command": about.command_line,
            "pid": about.pid,
            "python_allocator": str(about.python_allocator),
            "python_allocations_recorded": bool(about.trace_python_allocators),
            # Of a program that was killed memray has no totals.
            "ended": claimed > 0,
            "tids": list(self.threads),
            "key_names": list(self.keys),
            "counts": {name: count for name, count in self.counts.items() if count},
            "dropped": {},
        }
        asides = {"maps": maps} if len(maps["event"]) else {}
        return self.source.trace(columns, metadata, asides)

    def _walk(self, tell: Callable[[int], object]) -> None:
        counts, kinds = self.counts, self.kinds
        pending: Any = None  # a free that may be the first half of a realloc
        for record in self.file.get_allocation_records():
            counts["records"] += 1
            if not counts["records"] % _BAR_RECORDS:
                tell(_BAR_RECORDS)
            kind = kinds.get(record.allocator)
            if kind is None:
                self.source.fail(f"a record of kind {record.allocator}, which is not known here")
            if pending is not None:
                pair = kind.removeprefix("PYMALLOC_") == "REALLOC" and pending[1:] == (
                    record.tid,
                    kind.startswith("PYMALLOC_"),
                )
                if pair and self._realloc(pending[0], record):
                    pending = None
                    continue
                self._free(*pending[:2])
                pending = None
            if kind in _MAPS:
                counts[_MAPS[kind]] += 1
                self._map(record, kind == "MUNMAP")
            elif kind in ("FREE", "PYMALLOC_FREE"):
                pending = (record.address, record.tid, kind.startswith("PYMALLOC_"))
            else:
                self._alloc(record, kind.removeprefix("PYMALLOC_").lower())
        if pending is not None:
            self._free(*pending[:2])

    def _append(self, op: int, object: int, size: int, tid: int, key: int, call: int) -> None:
        self.op.append(op)
        self.object.append(object)
        self.size.append(size)
        self.thread.append(self.threads.setdefault(tid, len(self.threads)))
        self.key.append(key)
        self.call.append(call)

    def _map(self, record: Any, gone: bool) -> None:
        row = {
            "event": len(self.op),
            "thread": self.threads.setdefault(record.tid, len(self.threads)),
            "call": int(gone),
            "address": record.address,
            "size_bytes": record.size,
        }
        for name, value in row.items():
            self.maps[name].append(value)

    def _alloc(self, record: Any, call: str) -> None:
        if record.address in self.live:
            self.counts["frees_inferred"] += 1
            self._free(record.address, record.tid)
        key = self._key(record)
        self.live[record.address] = (self.objects, key)
        number = CALL_NAMES.index(call) if call in CALL_NAMES else 0
        self._append(OP_ALLOC, self.objects, record.size, record.tid, key, number)
        self.objects += 1

    def _free(self, address: int, tid: int) -> None:
        found = self.live.pop(address, None)
        if found is None:
            self.counts["frees_of_untracked"] += 1
        else:
            self._append(OP_FREE, found[0], 0, tid, found[1], _FREE)

    def _realloc(self, old: int, record: Any) -> bool:
        found = self.live.get(old)
        if found is None or (record.address != old and record.address in self.live):
            return False
        del self.live[old]
        self.live[record.address] = found
        self.counts["reallocs_paired"] += 1
        call = CALL_NAMES.index("realloc")
        self._append(OP_REALLOC, found[0], record.size, record.tid, self._key(record), call)
        return True

    def _key(self, record: Any) -> int:
        stack = (record.stack_id, record.native_stack_id)
        key = self.key_of_stack.get(stack)
        if key is None:
            frames = record.stack_trace(max_stacks=1)
            if not frames and record.native_stack_id:
                frames = record.native_stack_trace(max_stacks=1)
            name = "{} {}:{}".format(*frames[0]) if frames else "unknown"
            key = self.keys.setdefault(name, len(self.keys))
            self.key_of_stack[stack] = key
        return key

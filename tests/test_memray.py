"""Captures of memray: recorded here, read by its own reader, compared with what it says itself."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx.foreign import memray as reader
from pyallocx.foreign._source import Source

PROGRAM = """
import mmap, sys, threading
import memray

def grow(n):
    return bytearray(n)

with memray.Tracker(sys.argv[1], trace_python_allocators=True):
    kept = [grow(1000 * i) for i in range(8)]
    kept[1].extend(b"x" * 50_000)
    del kept[3]
    thread = threading.Thread(target=grow, args=(77_777,))
    thread.start()
    thread.join()
    area = mmap.mmap(-1, 8192)
    area.close()
"""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("memray")
    folder = tmp_path_factory.mktemp("memray")
    (folder / "program.py").write_text(PROGRAM)
    path = folder / "capture.bin"
    # A process of its own: a tracker patches the one it is in.
    done = subprocess.run(
        [sys.executable, folder / "program.py", path], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"memray records nothing here: {done.stderr[-300:]}")
    return path


def test_a_capture_is_read_whole(capture: Path) -> None:
    import memray

    trace = px.load(capture)
    summary = trace.summary()
    with memray.FileReader(capture) as file:
        records = list(file.get_allocation_records())
        about = file.metadata
    counts = trace.metadata["counts"]
    assert trace.metadata["reader"] == "memray"
    assert counts["records"] == about.total_allocations == len(records)
    kinds = [memray.AllocatorType(record.allocator).name for record in records]
    frees = sum(kind in ("FREE", "PYMALLOC_FREE") for kind in kinds)
    maps = sum(kind in ("MMAP", "MUNMAP") for kind in kinds)
    paired, untracked = counts["reallocs_paired"], counts.get("frees_of_untracked", 0)
    assert summary["reallocs"] == paired > 0
    assert summary["frees"] == frees - paired - untracked + counts.get("frees_inferred", 0)
    assert summary["allocs"] == len(records) - frees - maps - paired
    assert len(trace.asides["maps"]["event"]) == maps >= 2
    assert {0, 1} <= set(trace.asides["maps"]["call"].tolist())
    assert 8192 in trace.asides["maps"]["size_bytes"].tolist()
    assert summary["threads"] == 2
    assert len(trace.metadata["tids"]) == 2


def test_a_capture_names_functions_and_lines(capture: Path) -> None:
    trace = px.load(capture)
    names = trace.metadata["key_names"]
    assert trace.key is not None
    assert int(trace.key.max()) < len(names)
    large = np.flatnonzero((trace.op == px.OP_ALLOC) & (trace.size_bytes == 77_778))
    assert len(large) == 1
    assert names[trace.key[large[0]]].startswith("grow ")
    assert names[trace.key[large[0]]].endswith("program.py:6")
    freed = np.flatnonzero((trace.op == px.OP_FREE) & (trace.object == trace.object[large[0]]))
    assert trace.key[freed].tolist() == [trace.key[large[0]]]
    assert trace.thread[large[0]] != trace.thread[0]
    extended = np.flatnonzero((trace.op == px.OP_REALLOC) & (trace.size_bytes > 50_000))
    assert len(extended) >= 1
    assert px.CALLS[trace.call[extended[0]]] == "realloc"


def test_a_capture_inside_gzip(capture: Path, tmp_path: Path) -> None:
    packed = tmp_path / "capture.gz"
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    trace = px.load(packed)
    assert trace == px.load(capture)
    path = tmp_path / "again.txt"
    told = px.write(trace, path)
    assert "key" in told["left_out"]
    assert px.load(path).summary()["peak_live_bytes"] == trace.summary()["peak_live_bytes"]


def test_a_capture_that_is_cut_is_refused(capture: Path, tmp_path: Path) -> None:
    whole = capture.read_bytes()
    for length in (60, len(whole) // 2, len(whole) - 5):
        path = tmp_path / "cut.bin"
        path.write_bytes(whole[:length])
        with pytest.raises(px.TraceError, match=r"cut\.bin"):
            px.load(path)


def test_without_memray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", None)
    for head in (b"memray\0\x0d", b'\x04"M\x18@@\xc0X\x07\x00\x00\xf9\x05memray\x00'):
        path = tmp_path / "a.bin"
        path.write_bytes(head + bytes(100))
        with pytest.raises(ImportError, match=r"pip install 'pyallocx\[memray\]'"):
            px.load(path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import os; os.abort()", r"memray's reader died \(SIGABRT\), so the file is damaged"),
        ("raise KeyError('oh')", r"memray's reader failed, so .* damaged \(KeyError: 'oh'\)"),
        ("raise OSError('cut')", "a.bin: memray cannot read it as a trace: cut"),
        ("raise NotImplementedError('agg')", "memray cannot read it as a trace: agg"),
    ],
)
def test_what_kills_memray_does_not_kill_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    (tmp_path / "memray.py").write_text(f"def FileReader(path):\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "a.bin"
    path.write_bytes(b"memray\0" + bytes(100))
    with pytest.raises(px.TraceError, match=message) as caught:
        px.load(path)
    assert str(caught.value).startswith(f"{path}: ")


# ---- the order of records -----------------------------------------------------------------------

KINDS = {"PYMALLOC_FREE": 1, "PYMALLOC_MALLOC": 2, "PYMALLOC_REALLOC": 4, "FREE": 5, "MALLOC": 6,
         "REALLOC": 7, "CALLOC": 8, "VALLOC": 12, "MMAP": 14, "MUNMAP": 15}  # fmt: skip


class FakeFile:
    """What memray's reader answers, without a file."""

    def __init__(self, records: list[Any], total: int | None = None) -> None:
        self.records = records
        self.metadata = SimpleNamespace(
            total_allocations=len(records) if total is None else total,
            command_line="x",
            pid=1,
            python_allocator="pymalloc",
            trace_python_allocators=True,
        )

    def get_allocation_records(self) -> list[Any]:
        return self.records


def record(kind: str, address: int, size: int = 0, tid: int = 1) -> Any:
    return SimpleNamespace(
        allocator=KINDS[kind], address=address, size=size, tid=tid, stack_id=0, native_stack_id=0,
        stack_trace=lambda max_stacks: [],
    )  # fmt: skip


def read(records: list[Any], **options: Any) -> px.Trace:
    class Kind(int):
        name: str

    members = []
    for name, number in KINDS.items():
        member = Kind(number)
        member.name = name
        members.append(member)
    fake = SimpleNamespace(AllocatorType=members)
    source = Source(None, None, "f", "f", "f", False, "memray")  # type: ignore[arg-type]
    return reader._Records(source, fake, FakeFile(records, **options)).read()


def events(trace: px.Trace) -> list[tuple[int, int, int, str]]:
    return [
        (op, thing, size, px.CALLS[call])
        for op, thing, size, call in zip(
            trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(),
            trace.call.tolist(), strict=True,
        )
    ]  # fmt: skip


A, F, R = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC


def test_a_free_and_a_realloc_are_one_realloc() -> None:
    trace = read([record("MALLOC", 16, 8), record("FREE", 16), record("REALLOC", 32, 9)])
    assert events(trace) == [(A, 0, 8, "malloc"), (R, 0, 9, "realloc")]
    assert trace.metadata["counts"]["reallocs_paired"] == 1


@pytest.mark.parametrize(
    "second",
    [
        [record("REALLOC", 32, 9, tid=2)],
        [record("PYMALLOC_REALLOC", 32, 9)],
        [record("MMAP", 4096, 4096), record("REALLOC", 32, 9)],
    ],
)
def test_others_are_a_free_and_an_alloc(second: list[Any]) -> None:
    trace = read([record("MALLOC", 16, 8), record("FREE", 16), *second])
    assert events(trace) == [(A, 0, 8, "malloc"), (F, 0, 0, "free"), (A, 1, 9, "realloc")]


def test_what_memray_does_not_say() -> None:
    trace = read(
        [
            record("FREE", 64),
            record("FREE", 80),
            record("REALLOC", 80, 3),
            record("CALLOC", 96, 1),
            record("VALLOC", 96, 2),
            record("PYMALLOC_MALLOC", 112, 5, tid=9),
            record("FREE", 112),
        ]
    )
    assert events(trace) == [
        (A, 0, 3, "realloc"),
        (A, 1, 1, "calloc"),
        (F, 1, 0, "free"),
        (A, 2, 2, "valloc"),
        (A, 3, 5, "malloc"),
        (F, 3, 0, "free"),
    ]
    counts = trace.metadata["counts"]
    assert counts == {"records": 7, "frees_of_untracked": 2, "frees_inferred": 1}
    assert trace.metadata["tids"] == [1, 9]


def test_records_that_are_missing_are_noticed() -> None:
    with pytest.raises(px.TraceError, match="f: ends after 1 records of 2"):
        read([record("MALLOC", 16, 8)], total=2)
    killed = read([record("MALLOC", 16, 8)], total=0)
    assert killed.metadata["ended"] is False
    wrong = record("MALLOC", 16, 8)
    wrong.allocator = 77
    with pytest.raises(px.TraceError, match="a record of kind 77"):
        read([wrong])


@given(
    st.lists(
        st.builds(
            record,
            st.sampled_from(sorted(KINDS)),
            st.integers(1, 6).map(lambda n: 16 * n),
            st.integers(0, 100),
            st.integers(1, 2),
        ),
        max_size=60,
    )
)
def test_any_records_make_a_valid_trace(records: list[Any]) -> None:
    trace = read(records)
    # What is live at the end is what the last record of an address says.
    live: dict[int, int] = {}
    for one in records:
        kind = next(name for name, number in KINDS.items() if number == one.allocator)
        if kind in ("FREE", "PYMALLOC_FREE"):
            live.pop(one.address, None)
        elif kind not in ("MMAP", "MUNMAP"):
            live[one.address] = one.size
    summary = trace.summary()
    assert summary["live_objects_end"] == len(live)
    assert summary["live_bytes_end"] == sum(live.values())

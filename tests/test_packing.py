"""Compressed files: the same trace in fewer bytes, readable by NumPy alone, and never believed."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_cases import asides_of, traces

import pyallocx as px
from pyallocx import _packing

A, F, R, D = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC, px.OP_DESTROY
MAX32, MAX64 = 2**32 - 1, 2**64 - 1
IN_ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def members_of(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files if name != "metadata.json"}


def same(one: px.Trace, other: px.Trace) -> bool:
    dtypes = [
        {n: None if c is None else c.dtype for n, c in t.columns().items()} for t in (one, other)
    ]
    rows = [
        {(n, c): a.dtype for n, t in o.asides.items() for c, a in t.items()} for o in (one, other)
    ]
    return (
        one == other
        and asides_of(one) == asides_of(other)
        and dtypes[0] == dtypes[1]
        and rows[0] == rows[1]
    )


# ---- round trips --------------------------------------------------------------------------------


@IN_ONE_FOLDER
@given(trace=traces(max_events=60), piece=st.integers(1, 70))
def test_what_is_packed_comes_back(tmp_path: Path, trace: px.Trace, piece: int) -> None:
    path = tmp_path / "t.npz"
    with pytest.MonkeyPatch.context() as patch:
        # Pieces smaller than the trace: what goes from one to the next is what can be wrong.
        patch.setattr(_packing, "_STEP", piece)
        trace.save(path)
    assert same(px.load(path), trace)


@pytest.mark.parametrize("wide", [False, True])
def test_extremes(tmp_path: Path, wide: bool) -> None:
    dtype = np.uint64 if wide else np.uint32
    none = np.iinfo(dtype).max
    trace = px.Trace(
        [A, A, D, A, F],
        np.array([0, 1, none, 2, 2], dtype),
        # A free with a size: nobody looks at it, but it is in the column.
        [MAX64, 0, 5, 1, 2**40],
        thread=[0, MAX32, 1, 0, 0],
        time_ns=[0, MAX64, MAX64, MAX64, MAX64],
        # Another key than that of its alloc.
        key=[1, 2, 3, MAX32, 4],
        arena=[MAX32, 0, 0, MAX32, MAX32],
        call=[1, 12, 0, 2, 11],
        asides={
            "x": {
                "event": [0, 0, 3, 5],
                "time_ns": [MAX64, 0, 1, MAX64],
                "object": np.array([none, 2, 0, none], dtype),
                "one": np.array([0, 255, 1, 2], np.uint8),
                "two": np.array([0, 65535, 1, 2], np.uint16),
            },
            "empty": {"event": [], "object": [], "time_ns": []},
        },
    )
    trace.save(tmp_path / "t.npz")
    assert same(px.load(tmp_path / "t.npz"), trace)
    assert {"size_bytes.u8.planes", "key.u4.planes", "arena.u4.own"} <= set(
        members_of(tmp_path / "t.npz")
    )


def test_asides_of_a_trace_without_times_or_events(tmp_path: Path) -> None:
    rows = {"event": [0, 0], "time_ns": [7, 3], "object": [-1, -1]}
    for trace in (
        px.Trace([], [], [], time_ns=[], asides={"x": rows}),
        px.Trace([A], [0], [8], asides={"x": rows}),
    ):
        trace.save(tmp_path / "t.npz")
        assert same(px.load(tmp_path / "t.npz"), trace)


def test_columns_that_say_what_others_say_are_left_out(tmp_path: Path) -> None:
    trace = px.synthesize(20_000, seed=3, arenas=3, keys=7, threads=2)
    trace.save(tmp_path / "t.npz")
    members = members_of(tmp_path / "t.npz")
    allocs = trace.n_objects
    destroys = int((trace.op == D).sum())
    assert members["object.u4.ago"].shape[1] == len(trace) - allocs - destroys
    assert members["arena.u4.own"].shape == (1, allocs + destroys)
    assert members["key.u4.own"].shape == (1, allocs + destroys)
    assert members["size_bytes.u8.asked"].shape[1] == allocs


def test_metadata_says_nothing_of_how_it_was_packed(tmp_path: Path) -> None:
    trace = px.Trace([A], [0], [8], metadata={"a": 1})
    for compress, version in ((True, 2), (False, 1)):
        trace.save(tmp_path / "t.npz", compress=compress)
        with zipfile.ZipFile(tmp_path / "t.npz") as archive:
            assert json.loads(archive.read("metadata.json")) == {"a": 1, "format_version": version}
        assert px.load(tmp_path / "t.npz").metadata == {"a": 1, "format_version": 1}


def test_files_of_the_first_version_are_read(tmp_path: Path) -> None:
    """Every column as it is and deflated, as they were written before columns were packed."""
    trace = px.synthesize(500, seed=4, arenas=2, keys=3)
    path = tmp_path / "old.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", json.dumps({"format_version": 1, "b": 2}))
        for name, column in trace.columns().items():
            if column is not None:
                data = io.BytesIO()
                np.save(data, column)
                archive.writestr(f"{name}.npy", data.getvalue())
    loaded = px.load(path)
    assert same(loaded, trace)
    assert loaded.metadata == {"format_version": 1, "b": 2}


def test_some_columns_packed_and_some_not(tmp_path: Path) -> None:
    trace = px.synthesize(500, seed=4, arenas=2)
    trace.save(tmp_path / "p.npz")
    members = members_of(tmp_path / "p.npz")
    del members["size_bytes.u8.asked"]
    np.savez(tmp_path / "m.npz", size_bytes=trace.size_bytes, **members)
    assert same(px.load(tmp_path / "m.npz"), trace)


def test_progress_of_writing_and_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = px.synthesize(500, seed=4)
    for compress in (True, False):
        trace.save(tmp_path / "t.npz", compress=compress, progress=True)
        px.load(tmp_path / "t.npz", progress=True)
        shown = capsys.readouterr().err
        assert "writing t.npz" in shown
        assert "reading t.npz" in shown
    trace.save(tmp_path / "t.npz")
    assert capsys.readouterr().err == ""


# ---- NumPy alone --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documented(repository: Path) -> Any:
    """The lines of the documentation that read a file."""
    text = (repository / "docs/traces.md").read_text()
    blocks = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "read_npz" in b]
    assert len(blocks) == 1
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    return names["read_npz"]


@IN_ONE_FOLDER
@given(trace=traces(), compress=st.booleans())
def test_documented_lines_read_a_file(
    tmp_path: Path, documented: Any, trace: px.Trace, compress: bool
) -> None:
    trace.save(tmp_path / "t.npz", compress=compress)
    expected = {n: c for n, c in trace.columns().items() if c is not None}
    for aside, columns in trace.asides.items():
        expected |= {f"aside.{aside}.{name}": column for name, column in columns.items()}
    found = documented(tmp_path / "t.npz")
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype, name
        assert found[name].tolist() == column.tolist(), name


# ---- lies ---------------------------------------------------------------------------------------


def planes(*rows: list[int]) -> np.ndarray[Any, Any]:
    return np.array(rows, np.uint8)


GOOD: dict[str, np.ndarray[Any, Any]] = {
    "op": np.array([A, A, R, F], np.uint8),
    "thread.u4.planes": planes([0, 1, 1, 0]),
    "object.u4.ago": planes([1, 0]),
    "size_bytes.u8.asked": planes([8, 16, 0], [0, 0, 1]),
    "time_ns.u8.steps": planes([5, 0, 1, 1]),
    "key.u4.own": planes([3, 4]),
    "aside.x.event.u8.steps": planes([1, 3]),
    "aside.x.object.u8.ago": planes([0, 1]),
    "aside.x.time_ns.u8.beside": planes([0, 1]),
}


def test_good_members_are_good(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **GOOD)
    assert same(
        px.load(tmp_path / "g.npz"),
        px.Trace(
            np.array([A, A, R, F], np.uint8),
            np.array([0, 1, 0, 1], np.uint32),
            [8, 16, 256, 0],
            thread=[0, 1, 1, 0],
            time_ns=[5, 5, 6, 7],
            key=[3, 4, 3, 4],
            asides={"x": {"event": [1, 4], "object": [0, 0], "time_ns": [5, 8]}},
        ),
    )


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"object.u4.ago": planes([1])}, "expected 2 numbers, as 'op' says, found 1"),
        ({"object.u4.ago": planes([1, 0, 0])}, "expected 2 numbers, as 'op' says, found 3"),
        # An age before the first alloc.
        ({"object.u4.ago": planes([1, 2]), "key.u4.own": None}, "event 3: free of an object that"),
        ({"object.u4.ago": planes([1, 2])}, "an event names object 4294967295, of 2"),
        (
            {"object.u4.ago": None, "object": np.array([0, 1, 2, 1], np.uint32)},
            "an event names object 2, of 2",
        ),
        ({"object.u4.ago": planes(*[[255, 0]] * 4), "key.u4.own": None}, "event 2: realloc of an"),
        ({"object.u4.ago": planes(*[[1, 0]] * 5)}, "found 5 planes, allowed are 1 to 4"),
        ({"object.u4.ago": np.zeros((0, 2), np.uint8)}, "found 0 planes, allowed are 1 to 4"),
        ({"size_bytes.u8.asked": np.zeros(3, np.uint8)}, "expected planes: uint8 in 2 dimensions"),
        ({"size_bytes.u8.asked": np.zeros((1, 3), np.uint16)}, "expected planes: uint8"),
        ({"size_bytes.u8.asked": np.zeros((3, 2), np.uint8, "F")}, "row by row"),
        ({"size_bytes.u8.asked": np.zeros((1, 3), object)}, "expected planes"),
        ({"size_bytes.u8.asked": planes([1, 2, 3, 4])}, "expected 3 numbers"),
        ({"time_ns.u8.steps": planes([1, 2, 3])}, "expected 4 numbers"),
        ({"time_ns.u8.steps": planes(*[[255] * 4] * 8)}, "event 1: time runs backwards"),
        ({"thread.u4.planes": planes([1] * 5)}, "expected 4 numbers"),
        ({"key.u4.own": planes([1])}, "expected 2 numbers"),
        ({"key": np.array([1] * 4, np.uint32)}, "column 'key' is in 'key.u4.own.npy', too"),
        ({"thread.u4.rle": planes([1] * 4)}, "packed in a way that is not known here"),
        ({"thread.u4.steps": planes([1] * 4)}, "packed in a way that is not known here"),
        ({"thread.u4": planes([1] * 4)}, "packed in a way that is not known here"),
        ({"op.u1.planes": planes([1] * 4)}, "packed in a way that is not known here"),
        ({"thread.u4.planes": None, "thread.u8.planes": planes([1] * 4)}, "must hold uint32"),
        ({"thread.u4.planes": None, "thread.x.planes": planes([1] * 4)}, "must hold uint32"),
        ({"object.u4.ago": None}, "expected a member 'object.npy', found none"),
        ({"op": np.array([A, A, R, 7], np.uint8)}, "expected 1 numbers, as 'op' says"),
        ({"op": np.array([F, R, A, A], np.uint8)}, "an event names object 4294967295"),
        ({"aside.x.event.u8.steps": planes([1, 4])}, "a row stands before event 5"),
        ({"aside.x.event.u8.steps": None}, "expected as many rows as in column 'event'"),
        ({"aside.x.event.u8.steps": planes([1])}, "expected as many rows as in column 'event'"),
        ({"aside.x.object.u8.ago": planes([0])}, "expected as many rows as in column 'event'"),
        ({"aside.x.object.u8.ago": planes([9, 0])}, "aside 'x', row 0: object is"),
        ({"aside.x.n.u4.steps": planes([1, 2])}, "packed in a way that is not known here"),
        ({"aside.x.n.f8.planes": planes([1, 2])}, "must hold uint8 or uint16"),
        ({"time_ns.u8.steps": None}, "the trace has no times that these can be beside"),
    ],
)
def test_packed_file_that_lies(
    tmp_path: Path, changes: dict[str, Any], message: str, write: Any
) -> None:
    path = tmp_path / "lie.npz"
    write(path, **{k: v for k, v in (GOOD | changes).items() if v is not None})
    with pytest.raises(px.TraceError, match=re.escape(message) if "(" in message else message) as e:
        px.load(path)
    assert "lie.npz" in str(e.value)


def forged(shape: str, body: bytes) -> bytes:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + body


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("(1, 1000000000000)", "1,000,000,000,000 bytes need"),
        ("(8, 1)", "8 bytes need"),
        ("(1, -3)", "the member has"),
        ("(-1, -3)", "found -1 planes"),
        ("(10**30, 3)", "no header of an npy file"),
        (f"(1, {10**30})", "the member has"),
        ("(1, 3, 1)", "expected planes"),
    ],
)
def test_header_that_lies(tmp_path: Path, shape: str, message: str) -> None:
    np.savez(tmp_path / "f.npz", **{k: v for k, v in GOOD.items() if k[:4] != "size"})
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = tmp_path / "g.npz"
        path.write_bytes((tmp_path / "f.npz").read_bytes())
        with zipfile.ZipFile(path, "a", method) as archive:
            archive.writestr("size_bytes.u8.asked.npy", forged(shape, b"\1\2\3"))
        with pytest.raises(px.TraceError, match=message):
            px.load(path)


def test_packed_bomb_is_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    """A member that claims to unpack to more than deflate can make of its bytes."""
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **GOOD)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2")
    while not data[entry + 46 :].startswith(b"time_ns.u8.steps.npy"):
        entry = data.index(b"PK\1\2", entry + 1)
    struct.pack_into("<I", data, entry + 24, 1 << 31)
    path.write_bytes(data)
    with pytest.raises(px.TraceError, match="bytes cannot hold the 2,147,483,648 claimed"):
        px.load(path)


def test_checksum_of_planes_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    for write in (np.savez, np.savez_compressed):
        write(path, **GOOD)
        data = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            crc = archive.getinfo("time_ns.u8.steps.npy").CRC
        entry = data.index(b"PK\1\2")
        while not data[entry + 46 :].startswith(b"time_ns.u8.steps.npy"):
            entry = data.index(b"PK\1\2", entry + 1)
        struct.pack_into("<I", data, entry + 16, crc ^ 1)
        path.write_bytes(data)
        with pytest.raises(px.TraceError, match="Bad CRC-32"):
            px.load(path)


def loaded_or_refused(path: Path) -> None:
    try:
        loaded = px.load(path)
    except px.TraceError as error:
        message = str(error)
    else:
        # Checked once more by the constructor.
        assert loaded == px.Trace(**loaded.columns(), asides=loaded.asides)
        return
    assert path.name in message


@IN_ONE_FOLDER
@given(
    trace=traces(max_events=12),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8),
    cut=st.none() | st.integers(0, 1 << 20),
    stored=st.booleans(),
)
def test_damaged_packed_file_only_raises_trace_error(
    tmp_path: Path,
    trace: px.Trace,
    changes: list[tuple[int, int]],
    cut: int | None,
    stored: bool,
) -> None:
    path = tmp_path / "d.npz"
    trace.save(path)
    if stored:
        # Where no deflate is in between, damage reaches the numbers.
        np.savez(path, **members_of(path))
    data = bytearray(path.read_bytes())
    for at, value in changes:
        data[at % len(data)] = value
    path.write_bytes(data if cut is None else data[: cut % len(data)])
    loaded_or_refused(path)


@IN_ONE_FOLDER
@given(trace=traces(max_events=12), data=st.data())
def test_any_other_numbers_are_refused_or_a_valid_trace(
    tmp_path: Path, trace: px.Trace, data: st.DataObject
) -> None:
    """The right checksums around wrong numbers."""
    path = tmp_path / "w.npz"
    trace.save(path)
    members = members_of(path)
    for name in data.draw(st.lists(st.sampled_from(sorted(members)), min_size=1, max_size=3)):
        array = members[name].copy()
        if array.size:
            array.flat[data.draw(st.integers(0, array.size - 1))] = data.draw(st.integers(0, 255))
        members[name] = array if data.draw(st.booleans()) else array[..., : array.shape[-1] // 2]
    np.savez(path, **members)
    loaded_or_refused(path)


# ---- how good -----------------------------------------------------------------------------------


def test_real_programs_take_few_bytes(tmp_path: Path, shared_data: Path) -> None:
    trace = px.load(shared_data / "traces/recorded/git_log.zip")
    random = np.random.default_rng(7)
    # Times as a recorder takes them: mostly short steps, some very long.
    steps = np.exp(random.normal(4, 1.5, len(trace))).astype(np.uint64)
    time_ns = np.cumsum(steps)
    began = np.flatnonzero(trace.op == R)
    timed = px.Trace(
        **trace.columns() | {"time_ns": time_ns},
        asides={
            "realloc_begin": {
                "event": began,
                "time_ns": time_ns[began] - random.integers(20, 90, len(began)).astype(np.uint64),
            },
            "failed": {"event": began, "time_ns": time_ns[began], "begin_ns": time_ns[began] - 40},
        },
    )
    timed.save(tmp_path / "t.npz")
    assert (tmp_path / "t.npz").stat().st_size / len(timed) < 3
    with zipfile.ZipFile(tmp_path / "t.npz") as file:
        assert "aside.failed.begin_ns.u8.beside.npy" in file.namelist()
    assert same(px.load(tmp_path / "t.npz"), timed)

"""The trace itself: rules, columns, summary, and its own file."""

from __future__ import annotations

import copy
import gc
import io
import json
import os
import pickle
import struct
import tempfile
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_cases import asides_of, columns_of, events, summarise, traces

import pyallocx as px
from pyallocx import _core, synth

A, F, R, D = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC, px.OP_DESTROY


def small(**changes: Any) -> px.Trace:
    arguments: dict[str, Any] = {
        "op": [A, A, R, F],
        "object": [0, 1, 0, 1],
        "size_bytes": [10, 20, 30, 0],
    }
    return px.Trace(**(arguments | changes))


# ---- making one ---------------------------------------------------------------------------------


def test_columns_have_the_dtypes_of_the_format() -> None:
    trace = small(
        thread=[0, 1, 0, 1], align_log2=[4, 0, 0, 0], time_ns=[1, 1, 2, 3], key=[5, 6, 5, 6]
    )
    assert {n: c.dtype.str for n, c in trace.columns().items() if c is not None} == {
        "op": "|u1",
        "thread": "<u4",
        "object": "<u8",
        "size_bytes": "<u8",
        "align_log2": "|u1",
        "time_ns": "<u8",
        "key": "<u4",
    }
    assert trace.arena is None
    assert len(trace) == 4
    assert trace.n_objects == 2


def test_object_column_of_four_bytes_stays_so() -> None:
    trace = small(object=np.array([0, 1, 0, 1], dtype=np.uint32))
    assert trace.object.dtype == np.uint32
    assert trace == small()


def test_big_endian_and_narrow_columns_are_taken() -> None:
    trace = small(
        size_bytes=np.array([10, 20, 30, 0], dtype=">u8"), op=np.array([0, 0, 2, 1], "i2")
    )
    assert trace == small()
    assert trace.size_bytes.dtype.isnative


def test_columns_are_copies_and_read_only() -> None:
    sizes = np.array([10, 20, 30, 0], dtype=np.uint64)
    trace = small(size_bytes=sizes)
    sizes[0] = 99
    assert trace.size_bytes[0] == 10
    with pytest.raises(ValueError, match="read-only"):
        trace.size_bytes[0] = 1
    with pytest.raises(AttributeError, match="immutable"):
        trace.op = sizes  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="immutable"):
        del trace.op
    with pytest.raises(TypeError):
        hash(trace)
    with pytest.raises(TypeError):
        trace.metadata["a"] = 1  # type: ignore[index]


def test_empty_trace() -> None:
    trace = px.Trace([], [], [])
    assert len(trace) == 0
    summary = trace.summary()
    assert summary["events"] == 0
    assert summary["peak_event"] is None
    assert "0 events" in repr(trace)
    assert "<table>" in trace._repr_html_()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"op": None}, TypeError, "column 'op' is None"),
        ({"object": None}, TypeError, "column 'object' is None"),
        ({"size_bytes": None}, TypeError, "column 'size_bytes' is None"),
        ({"size_bytes": [1.0, 2, 3, 4]}, TypeError, "dtype float64"),
        ({"op": [True, False, True, True]}, TypeError, "dtype bool"),
        ({"op": "abcd"}, TypeError, "dtype <U4"),
        ({"op": [None] * 4}, TypeError, "dtype object"),
        ({"size_bytes": [1, 2, 3]}, ValueError, "'size_bytes' has 3 events, expected 4"),
        ({"thread": [0] * 5}, ValueError, "'thread' has 5 events, expected 4"),
        ({"op": [[0, 0, 2, 1]]}, ValueError, "2 dimensions"),
        ({"op": 0}, ValueError, "0 dimensions"),
        ({"size_bytes": [1, -2, 3, 4]}, ValueError, "'size_bytes' is -2 at event 1"),
        ({"object": [0, -2, 3, 4]}, ValueError, "'object' is -2 at event 1"),
        ({"thread": [0, 0, 2**32, 0]}, ValueError, "'thread' is 4294967296 at event 2"),
        ({"op": [0, 0, 2, 256]}, ValueError, "'op' is 256 at event 3"),
        ({"size_bytes": [2**64, 0, 0, 0]}, ValueError, "holds a number that does not fit uint64"),
        ({"metadata": {"a": object()}}, TypeError, "JSON"),
        ({"metadata": {"a": float("nan")}}, ValueError, "JSON"),
    ],
)
def test_wrong_arguments(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"op": [4], "object": [0]}, "event 0: unknown operation .found 4, expected 0 to 3"),
        ({"op": [A, A], "object": [0, 2]}, "event 1: .*order.* .found 2, expected 1"),
        ({"op": [F], "object": [0]}, "event 0: free of an object that was never allocated"),
        ({"op": [A, R], "object": [0, 7]}, r"event 1: realloc .*never .found 7|never allocated"),
        ({"op": [A, F, F], "object": [0, 0, 0]}, "event 2: free of an object that is already dead"),
        ({"op": [D], "object": [-1]}, "event 0: destroy in a trace without an arena column"),
        ({"op": [A, D], "object": [0, 0], "arena": [0, 0]}, "event 1: destroy names an object"),
        ({"op": [A, F], "object": [0, 0], "arena": [0, 1]}, "found 1, expected 0"),
        ({"op": [A, D, F], "object": [0, -1, 0], "arena": [2, 2, 2]}, "died with its arena"),
        # The number of the arena is used again; what died with its first life stays dead.
        ({"op": [A, D, A, R], "object": [0, -1, 1, 0], "arena": [2] * 4}, "died with its arena"),
        ({"op": [A, A], "object": [0, 1], "time_ns": [2, 1]}, "event 1: time runs backwards"),
        ({"op": [A], "object": [0], "align_log2": [64]}, "event 0: align_log2 is 64"),
        (
            {"op": [A, F], "object": [0, 0], "call": [1, 13]},
            "event 1: call is 13, allowed are 0 to 12",
        ),
    ],
)
def test_broken_rules(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(px.TraceError, match=message):
        px.Trace(size_bytes=[0] * len(columns["op"]), **columns)


def test_destroy_with_all_ones_in_both_widths() -> None:
    for dtype in (np.uint32, np.uint64):
        none = np.iinfo(dtype).max
        trace = px.Trace([A, D, A], np.array([0, none, 1], dtype), [5, 0, 6], arena=[3, 3, 3])
        assert trace.summary()["live_bytes_end"] == 6
    assert trace == px.Trace([A, D, A], [0, -1, 1], [5, 0, 6], arena=[3, 3, 3])


@given(events(arenas=True), st.data())
def test_any_changed_event_is_refused_or_still_valid(
    made: list[dict[str, int]], data: st.DataObject
) -> None:
    """What the check accepts, a walk in Python accepts, and the other way round."""
    if made:
        event = data.draw(st.sampled_from(made))
        name = data.draw(st.sampled_from(["op", "object", "arena", "time_ns"]))
        event[name] = data.draw(st.integers(0, 5))
    try:
        px.Trace(**columns_of(made, "arena", "time_ns"))
        accepted = True
    except px.TraceError:
        accepted = False
    assert accepted == is_valid(made)


def is_valid(made: list[dict[str, int]]) -> bool:
    live: dict[int, int] = {}
    objects = time = 0
    for event in made:
        op, name, arena = event["op"], event["object"], event["arena"]
        if event["time_ns"] < time:
            return False
        time = event["time_ns"]
        if op == A:
            if name != objects:
                return False
            live[name] = arena
            objects += 1
        elif op == D:
            if name != 2**64 - 1:
                return False
            live = {o: a for o, a in live.items() if a != arena}
        elif op > D or live.get(name) != arena:
            return False
        elif op == F:
            del live[name]
    return True


# ---- what it can do -----------------------------------------------------------------------------


@given(events(arenas=True))
def test_summary_is_that_of_a_slow_walk(made: list[dict[str, int]]) -> None:
    trace = px.Trace(**columns_of(made, "thread", "arena", "key", "time_ns"))
    summary = trace.summary()
    expected = summarise(made)
    assert {name: summary[name] for name in expected} == expected
    assert summary["keys"] == len({e["key"] for e in made if e["op"] != D})
    if made:
        assert summary["duration_ns"] == made[-1]["time_ns"] - made[0]["time_ns"]
    else:
        assert summary["duration_ns"] is None
    assert json.loads(json.dumps(summary)) == summary


def test_summary_without_optional_columns() -> None:
    summary = small().summary()
    assert summary["keys"] is None
    assert summary["duration_ns"] is None
    assert summary["threads"] == 1
    assert summary["arenas"] == 1
    assert summary["peak_live_bytes"] == 50
    summary["peak_live_bytes"] = 0
    assert small().summary()["peak_live_bytes"] == 50


def test_summary_that_overflows() -> None:
    trace = px.Trace([A, A], [0, 1], [2**63, 2**63])
    with pytest.raises(OverflowError, match="live bytes do not fit 64 bits"):
        trace.summary()
    assert "2 events" in trace._repr_html_()


@given(traces())
def test_pickle_and_copy(trace: px.Trace) -> None:
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        other = pickle.loads(pickle.dumps(trace, protocol))
        assert other == trace
        assert other.n_objects == trace.n_objects
        assert not other.op.flags.writeable
    assert copy.copy(trace) is trace
    assert copy.deepcopy(trace) is trace


@pytest.mark.parametrize("events", [0, 4])
@pytest.mark.parametrize("how", ["made", "saved", "mapped", "pickled", "parted"])
def test_no_column_can_be_made_writeable(tmp_path: Path, events: int, how: str) -> None:
    columns = columns_of([], "thread") if not events else small(thread=[0, 1, 0, 1]).columns()
    trace = px.Trace(**{name: c for name, c in columns.items() if c is not None})  # type: ignore[arg-type]
    if how in ("saved", "mapped"):
        trace.save(tmp_path / "t.npz", compress=how == "saved")
        trace = px.load(tmp_path / "t.npz")
    elif how == "pickled":
        trace = pickle.loads(pickle.dumps(trace))
    elif how == "parted":
        (trace,) = trace.by_arena()
    assert len(trace) == events
    for column in trace.columns().values():
        if column is not None:
            assert column.dtype.isnative
            with pytest.raises(ValueError):
                column.flags.writeable = True
            with pytest.raises(ValueError):
                column.setflags(write=True)


def test_equality() -> None:
    assert small() == small(metadata={"a": 1})
    assert small() != small(size_bytes=[10, 20, 31, 0])
    assert small() != small(key=[0] * 4)
    assert small() != px.Trace([], [], [])
    assert small() != "trace"


def test_reprs() -> None:
    trace = small(
        key=[1] * 4, time_ns=[0, 1, 2, 3], metadata={"file": "<b>.txt", "dropped": {"syntax": 3}}
    )
    assert repr(trace) == "Trace(4 events, 2 objects, with time_ns key, from '<b>.txt')"
    page = trace._repr_html_()
    assert "&lt;b&gt;.txt" in page
    assert "<b>" not in page
    assert "50 B in 2 objects" in page
    assert "3 syntax" in page
    assert "16 to 31" in page
    assert f"{2**62:,} to {2**63 - 1:,}" in px.Trace([A, A], [0, 1], [0, 2**62])._repr_html_()


def test_lists_that_numpy_would_make_floats_of() -> None:
    trace = px.Trace([A, A], [0, 1], [0, 2**64 - 1])
    assert trace.size_bytes.tolist() == [0, 2**64 - 1]


def test_progress_bar_only_where_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    small()
    assert capsys.readouterr().err == ""
    small(progress=True)
    assert "checking" in capsys.readouterr().err


# ---- the binding --------------------------------------------------------------------------------


def test_walkers_refuse_wrong_columns() -> None:
    op = np.zeros(2, np.uint8)
    ids = np.arange(2, dtype=np.uint32)
    sizes = np.zeros(2, np.uint64)
    for walker in (_core.TraceCheck, _core.TraceSummary):
        with pytest.raises(TypeError, match="'object' must be an array"):
            walker(op, None, sizes)
        with pytest.raises(TypeError, match="'object' must hold unsigned integers of 4 bytes"):
            walker(op, ids.astype(np.uint16), sizes)
        with pytest.raises(ValueError, match="'size_bytes' has 1 events, expected 2"):
            walker(op, ids, sizes[:1])
        with pytest.raises(ValueError, match="contiguous"):
            walker(np.zeros(4, np.uint8)[::2], ids, sizes)
        with pytest.raises(OverflowError):
            walker(op, ids, sizes).step(-1)
        with pytest.raises(TypeError):
            walker(op, ids, sizes).step("1")  # type: ignore[arg-type]
    check = _core.TraceCheck(op, ids, sizes)
    assert check.step(0) == 0
    assert check.step(1) == 1
    assert check.objects() == 1
    assert check.step(2**63) == 2
    assert check.step(1) == 2


def test_walker_refuses_reentry() -> None:
    n = 20_000_000
    op = np.zeros(n, np.uint8)
    walker = _core.TraceCheck(op, np.arange(n, dtype=np.uint32), np.zeros(n, np.uint64))
    refused = []
    thread = threading.Thread(target=lambda: walker.step(n))
    thread.start()
    while thread.is_alive():
        try:
            walker.objects()
        except RuntimeError as error:
            refused.append(str(error))
    thread.join()
    assert set(refused) <= {"trace check is in use by another thread"}
    assert walker.objects() == n


def test_walker_in_a_cycle_is_collected() -> None:
    class Owner(np.ndarray[Any, Any]):
        walker: Any

    owner = np.zeros(2, np.uint8).view(Owner)
    owner.walker = _core.TraceCheck(owner, np.arange(2, dtype=np.uint32), np.zeros(2, np.uint64))
    del owner
    assert gc.collect() > 0


# ---- its own file -------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces(), compress=st.booleans())
def test_round_trip(tmp_path: Path, trace: px.Trace, compress: bool) -> None:
    path = tmp_path / "trace.any"
    trace.save(path, compress=compress)
    loaded = px.load(path)
    assert loaded == trace
    assert asides_of(loaded) == asides_of(trace)
    assert loaded.object.dtype == trace.object.dtype
    assert not any(c.flags.writeable for c in loaded.columns().values() if c is not None)
    with np.load(path) as archive:
        assert np.array_equal(archive["op"], trace.op)
        if not compress:
            assert np.array_equal(archive["size_bytes"], trace.size_bytes)


def test_stored_columns_are_mapped_and_aligned(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    trace = small(key=[1, 2, 3, 4], metadata={"program": "x", "list": [1, None]})
    trace.save(path, compress=False)
    loaded = px.load(str(path))
    mapping = loaded.size_bytes.base
    assert isinstance(mapping, memoryview)
    assert isinstance(mapping.obj, np.ndarray)
    assert isinstance(mapping.obj.base, np.memmap)
    assert all(c.flags.aligned for c in loaded.columns().values() if c is not None)
    assert loaded.size_bytes.ctypes.data % 64 == 0
    assert loaded.metadata == {"program": "x", "list": [1, None], "format_version": 1}
    assert pickle.loads(pickle.dumps(loaded)) == trace
    # The file may go; the mapping stays.
    path.unlink()
    assert loaded == trace


def test_save_over_the_file_that_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    small().save(path, compress=False)
    loaded = px.load(path)
    loaded.save(path, compress=False)
    assert loaded == small()
    assert px.load(path) == small()


def test_files_that_numpy_wrote(tmp_path: Path) -> None:
    for writer in (np.savez, np.savez_compressed):
        path = tmp_path / "n.npz"
        trace = small()
        writer(path, op=trace.op, object=trace.object, size_bytes=trace.size_bytes)
        loaded = px.load(path)
        assert loaded == trace
        assert loaded.metadata == {"format_version": 1, "reader": "npz", "file": "n.npz"}


def test_save_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.npz"
    small().save(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        small(size_bytes=[1, 1, 1, 0]).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.npz"]


def test_save_and_load_answer_as_the_system_does(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        small().save(tmp_path / "no" / "t.npz")
    with pytest.raises(IsADirectoryError):
        small().save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        px.load(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        px.load(tmp_path)
    with pytest.raises(TypeError):
        px.load(5)  # type: ignore[arg-type]


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def write_zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


GOOD = {
    "op.npy": npy(np.array([0, 1], np.uint8)),
    "object.npy": npy(np.array([0, 0], np.uint32)),
    "size_bytes.npy": npy(np.array([8, 0], np.uint64)),
}


def forged(shape: str, descr: str = "|u1", body: bytes = b"\0\1") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + body


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"object.npy": None}, "expected a member 'object.npy', found none"),
        ({"object.npy": npy(np.array([0], np.uint32))}, "columns of equal length"),
        (
            {"object.npy": npy(np.array([0, 0], np.int32))},
            "'object' must hold uint32 or uint64, found int32",
        ),
        ({"op.npy": npy(np.array([0, 1]))}, "column 'op' must hold uint8, found int64"),
        ({"op.npy": npy(np.array([[0, 1]], np.uint8))}, "'op' must have one dimension, found 2"),
        ({"op.npy": npy(np.array([0, 1], object))}, "must hold uint8, found object"),
        ({"op.npy": npy(np.array([0, 3], np.uint8))}, "event 1: destroy in a trace without"),
        ({"op.npy": b""}, "no header of an npy file"),
        ({"op.npy": b"\x93NUMPY\2\0\0\0"}, "no header of an npy file"),
        ({"op.npy": forged("(2,)", "|u1' + '")}, "no header of an npy file"),
        ({"op.npy": forged("(" * 5000)}, "no header of an npy file"),
        (
            {"op.npy": forged("(" + " " * 20_000 + "2,)")},
            "no header of an npy file: it is too long",
        ),
        ({"op.npy": forged("(-2,)")}, r"op.npy\]: "),
        ({"op.npy": forged("(3,)")}, "3 events of uint8 need"),
        ({"op.npy": forged("(1,)")}, "1 events of uint8 need"),
        ({"op.npy": forged("(1152921504606846976,)")}, "the member has"),
        ({"op.npy": forged("(10000000000000000000000,)")}, "the member has"),
        ({"metadata.json": b"{"}, "metadata.json is no JSON"),
        ({"metadata.json": b"[" * 100_000}, "metadata.json is no JSON"),
        ({"metadata.json": b"\xff"}, "metadata.json is no JSON"),
        ({"metadata.json": b'{"format_version": 1, "a": NaN}'}, "metadata.json is no JSON"),
        ({"metadata.json": b'{"format_version": 1, "a": "\\ud800"}'}, "metadata.json is no JSON"),
        ({"metadata.json": b"[]"}, "holds no object"),
        ({"metadata.json": b"{}"}, "expected format_version 1 to 2, found None"),
        (
            {"metadata.json": b'{"format_version": 3}'},
            "expected format_version 1 to 2, found 3, which a newer pyallocx wrote",
        ),
    ],
)
def test_npz_that_lies(
    tmp_path: Path, members: dict[str, bytes | None], message: str, method: int
) -> None:
    path = tmp_path / "lie.npz"
    write_zip(path, {n: d for n, d in (GOOD | members).items() if d is not None}, method)
    with pytest.raises(px.TraceError, match=message) as caught:
        px.load(path)
    assert "lie.npz" in str(caught.value)


def test_deeply_nested_metadata(tmp_path: Path) -> None:
    for depth in (1, 49, 50, 51, *range(100, 1100, 7)):
        text = b'{"format_version": 1, "a": ' + b"[" * depth + b"]" * depth + b"}"
        write_zip(tmp_path / "d", GOOD | {"metadata.json": text})
        if depth < 50:
            px.load(tmp_path / "d").save(tmp_path / "again")
            continue
        with pytest.raises(px.TraceError, match=r"metadata\.json is (nested|no JSON)"):
            px.load(tmp_path / "d")


def test_columns_in_the_other_byte_order(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        write_zip(tmp_path / "b", GOOD | {"size_bytes.npy": npy(np.array([8, 0], ">u8"))}, method)
        loaded = px.load(tmp_path / "b")
        assert loaded.size_bytes.tolist() == [8, 0]
        assert loaded.size_bytes.dtype.isnative


def test_name_that_is_no_text(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.npz"
    small().save(path)  # type: ignore[arg-type]
    os.replace(path, path + b"2")
    write_zip(tmp_path / "n", GOOD)
    os.replace(tmp_path / "n", path)
    loaded = px.load(path)  # type: ignore[arg-type]
    assert loaded.metadata["file"] == "\ufffd.npz"
    loaded.save(tmp_path / "again")
    assert px.load(tmp_path / "again") == loaded


def test_good_members_are_good(tmp_path: Path) -> None:
    write_zip(tmp_path / "g", GOOD)
    assert len(px.load(tmp_path / "g")) == 2


def test_two_members_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    write_zip(path, GOOD)
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("op.npy", GOOD["op.npy"])
    with pytest.raises(px.TraceError, match=r"two members are called 'op.npy'"):
        px.load(path)


def test_deflated_checksum_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    write_zip(path, GOOD, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("size_bytes.npy")
    central = data.index(b"PK\1\2")
    while not data[central + 46 :].startswith(b"size_bytes.npy"):
        central = data.index(b"PK\1\2", central + 1)
    struct.pack_into("<I", data, central + 16, info.CRC ^ 1)
    path.write_bytes(data)
    with pytest.raises(px.TraceError, match="Bad CRC-32"):
        px.load(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    compress=st.booleans(),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8),
    cut=st.none() | st.integers(0, 1 << 20),
)
def test_damaged_npz_only_raises_trace_error(
    tmp_path: Path, compress: bool, changes: list[tuple[int, int]], cut: int | None
) -> None:
    path = tmp_path / "d.npz"
    small(key=[1, 2, 3, 4], metadata={"a": "b"}).save(path, compress=compress)
    data = bytearray(path.read_bytes())
    for at, value in changes:
        data[at % len(data)] = value
    path.write_bytes(data if cut is None else data[: cut % len(data)])
    try:
        trace, message = px.load(path), None
    except px.TraceError as error:
        trace, message = None, str(error)
    if trace is None:
        assert message is not None
        assert "d.npz" in message
    else:
        # Checked once more by the constructor.
        assert trace == px.Trace(**trace.columns())


@settings(max_examples=20)
@given(st.data())
def test_truncated_at_any_byte(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.npz"
        small().save(path, compress=data.draw(st.booleans()))
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with pytest.raises(px.TraceError):
            px.load(path)


def test_real_trace_survives_its_file(tmp_path: Path, shared_data: Path) -> None:
    trace = px.load(shared_data / "traces/recorded/git_log.zip")
    for compress in (True, False):
        path = tmp_path / f"{compress}.npz"
        trace.save(path, compress=compress)
        loaded = px.load(path)
        assert loaded == trace
        assert loaded.metadata == trace.metadata
        assert loaded.summary() == trace.summary()


def test_by_arena():
    whole = px.Trace(
        [A, A, F, A, R, D, A],
        [0, 1, 0, 2, 1, -1, 3],
        [8, 16, 0, 24, 32, 0, 40],
        time_ns=[1, 2, 3, 4, 5, 6, 7],
        thread=[0, 1, 0, 0, 1, 0, 0],
        arena=[0, 2, 0, 2, 2, 2, 2],
        metadata={"name": "three"},
    )
    first, none, last = whole.by_arena()
    assert first == px.Trace([A, F], [0, 0], [8, 0], time_ns=[1, 3], arena=[0, 0])
    assert len(none) == 0
    assert last.op.tolist() == [A, A, R, D, A]
    assert last.object[last.op != D].tolist() == [0, 1, 0, 2]
    assert last.size_bytes.tolist() == [16, 24, 32, 0, 40]
    assert last.time_ns.tolist() == [2, 4, 5, 6, 7]
    assert last.thread.tolist() == [1, 0, 1, 0, 0]
    assert last.metadata == {"name": "three"}
    without = px.synthesize(10)
    assert without.by_arena() == [without]
    assert len(px.synthesize(0, arenas=3).by_arena()) == 1


@pytest.mark.parametrize("wide", [False, True])
def test_what_arenas_do_adds_up(wide):
    lives = synth.Arenas(5, mean_events=700)
    made = px.synthesize(9000, seed=3, arenas=lives, keys=9, threads=2)
    objects = made.object.astype(np.uint64 if wide else np.uint32)
    objects[made.op == D] = np.iinfo(objects.dtype).max
    columns = made.columns() | {"object": objects}
    whole = px.Trace(**columns)
    parts = whole.by_arena()
    assert {part.object.dtype for part in parts} == {objects.dtype}
    sweeps = [px.sweep(px.Arena, part, retain_bytes=[0, 64]) for part in parts]
    for name in ("pops", "bumps", "list_mallocs", "list_frees", "overhead_bytes_end", "lists_end"):
        total = sum(one[name] for one in sweeps)
        assert total.tolist() == px.sweep(px.Arena, whole, retain_bytes=[0, 64])[name].tolist()


def test_head():
    whole = px.synthesize_code(500, seed=4)
    part = whole.head(700)
    assert len(part) == 700
    assert part.n_objects == int((whole.op[:700] == A).sum())
    for name, column in part.columns().items():
        full = getattr(whole, name)
        assert (column is None) == (full is None)
        assert column is None or column.tolist() == full[:700].tolist()
    assert part.metadata == whole.metadata
    assert whole.head(0) == px.Trace([], [], [], key=[])
    assert whole.head(10**9) == whole
    with pytest.raises(ValueError, match="events is -1"):
        whole.head(-1)

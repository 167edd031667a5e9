"""What happened beside the events of a trace, and which function made each."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from trace_cases import asides_of, traces

import pyallocx as px

A, F, R, D = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC, px.OP_DESTROY


def small(asides: Any = None, **changes: Any) -> px.Trace:
    arguments: dict[str, Any] = {
        "op": [A, A, R, F],
        "object": [0, 1, 0, 1],
        "size_bytes": [10, 20, 30, 0],
        "call": [1, 3, 4, 11],
    }
    return px.Trace(**(arguments | changes), asides=asides)


BESIDE: dict[str, Any] = {
    "realloc_begin": {"event": [2], "time_ns": [7]},
    "usable_size": {
        "event": [1, 1, 4],
        "object": np.array([0, 0, 1], np.uint32),
        "size_bytes": [24, 24, 32],
    },
    "failed": {"event": [0, 3], "object": [-1, 0], "size_bytes": [2**63, 1 << 40]},
}


def test_calls_are_named() -> None:
    trace = small()
    assert trace.call is not None
    assert trace.call.dtype == np.uint8
    assert [px.CALLS[c] for c in trace.call] == ["malloc", "realloc", "reallocarray", "free"]
    assert "with call" in repr(trace)
    assert "1 malloc, 1 realloc, 1 reallocarray, 1 free" in trace._repr_html_()
    assert trace != px.Trace([A, A, R, F], [0, 1, 0, 1], [10, 20, 30, 0])
    assert trace != small(call=[1, 3, 3, 11])


def test_asides_are_kept_as_they_are() -> None:
    trace = small(BESIDE)
    assert asides_of(trace) == {
        **{name: dict(columns) for name, columns in BESIDE.items()},
        "usable_size": {"event": [1, 1, 4], "object": [0, 0, 1], "size_bytes": [24, 24, 32]},
        "failed": {"event": [0, 3], "object": [2**64 - 1, 0], "size_bytes": [2**63, 1 << 40]},
    }
    assert trace.asides["usable_size"]["object"].dtype == np.uint32
    assert trace.asides["failed"]["event"].dtype == np.uint64
    assert "beside realloc_begin usable_size failed" in repr(trace)
    assert "1 realloc_begin, 3 usable_size, 2 failed" in trace._repr_html_()
    # Beside, so that they do not decide whether two traces are one.
    assert trace == small()
    assert small().asides == {}


def test_asides_cannot_be_changed() -> None:
    rows = np.array([2], np.uint64)
    trace = small({"x": {"event": rows}})
    rows[0] = 99
    assert trace.asides["x"]["event"].tolist() == [2]
    with pytest.raises(ValueError, match="read-only"):
        trace.asides["x"]["event"][0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        trace.asides["x"]["event"].setflags(write=True)
    with pytest.raises(TypeError):
        trace.asides["y"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        trace.asides["x"]["event"] = rows  # type: ignore[index]


@pytest.mark.parametrize(
    ("asides", "error", "message"),
    [
        ([], TypeError, "asides is list"),
        ({"x": [1]}, TypeError, "aside 'x' is list"),
        ({"a.b": {"event": []}}, ValueError, "an aside is called 'a.b'"),
        ({"": {"event": []}}, ValueError, "an aside is called ''"),
        ({"x": {"event": [], "a/b": []}}, ValueError, "called 'a/b'"),
        ({"x" * 65: {"event": []}}, ValueError, "up to 64 letters"),
        ({"x": {"time_ns": [1]}}, px.TraceError, "aside 'x' has no column 'event'"),
        ({"x": {}}, px.TraceError, "aside 'x' has no column 'event'"),
        ({"x": {"event": [1], "a": [1, 2]}}, px.TraceError, "aside 'x': .*equal length"),
        ({"x": {"event": [0, 2, 1]}}, px.TraceError, "aside 'x', row 2: event runs backwards"),
        ({"x": {"event": [0, 4, 5]}}, px.TraceError, "row 2: event is 5, allowed are 0 to 4"),
        ({"realloc_begin": {"event": [4]}}, px.TraceError, "its rows are about events"),
        ({"x": {"event": [1], "object": [2]}}, px.TraceError, "row 0: object is 2"),
        ({"x": {"event": [1], "object": [-2]}}, ValueError, "'object' of aside 'x' is -2 in row 0"),
        ({"x": {"event": [-1]}}, ValueError, "'event' of aside 'x' is -1 in row 0"),
        ({"x": {"event": [0.5]}}, TypeError, "column 'event' of aside 'x' has dtype float64"),
        ({"x": {"event": None}}, TypeError, "column 'event' of aside 'x' is None"),
        ({"x": {"event": [[1]]}}, ValueError, "2 dimensions"),
        ({"x": {"event": [1], "a": [2**64]}}, ValueError, "does not fit uint64"),
    ],
)
def test_wrong_asides(asides: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        small(asides)


@given(traces())
def test_pickle_keeps_all(trace: px.Trace) -> None:
    again = pickle.loads(pickle.dumps(trace))
    assert again == trace
    assert asides_of(again) == asides_of(trace)


def test_stored_asides_are_mapped(tmp_path: Path) -> None:
    small(BESIDE).save(tmp_path / "t.npz", compress=False)
    loaded = px.load(tmp_path / "t.npz")
    for columns in loaded.asides.values():
        for column in columns.values():
            mapping = column.base
            assert isinstance(mapping, memoryview)
            assert isinstance(mapping.obj.base, np.memmap)
    assert loaded.asides["usable_size"]["object"].dtype == np.uint32
    with np.load(tmp_path / "t.npz") as members:
        assert members["aside.usable_size.size_bytes"].tolist() == [24, 24, 32]


def rewritten(path: Path, changes: dict[str, np.ndarray[Any, Any] | None]) -> Path:
    """Write the plain file of a small trace with other members."""
    small(BESIDE).save(path, compress=False)
    with np.load(path) as members:
        arrays = {k: members[k] for k in members.files if k != "metadata.json"}
    arrays |= {k: v for k, v in changes.items() if v is not None}
    np.savez(path, **{k: v for k, v in arrays.items() if changes.get(k, 0) is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aside.x": np.array([1], np.uint64)}, r"\[aside.x.npy\]: expected a name like"),
        ({"aside.x.y.z": np.array([1], np.uint64)}, "packed in a way that is not known here"),
        ({"aside.x.event": np.array([5], np.uint64)}, "aside 'x', row 0: event is 5"),
        ({"aside.x.event": np.array([1], np.int64)}, "'event' must hold uint64, found int64"),
        ({"aside.x.event": np.array([1], object)}, "'event' must hold uint64, found object"),
        ({"aside.failed.event": None}, "aside 'failed' has no column 'event'"),
        (
            {"aside.failed.object": np.array([0, 1], np.uint8)},
            "'object' must hold uint32 or uint64, found uint8",
        ),
        ({"aside.failed.object": np.array([0], np.uint32)}, "aside 'failed': .*equal length"),
        ({"call": np.array([13] * 4, np.uint8)}, "call is 13"),
    ],
)
def test_file_that_lies_beside(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = rewritten(tmp_path / "lie.npz", changes)
    with pytest.raises(px.TraceError, match=message) as caught:
        px.load(path)
    assert "lie.npz" in str(caught.value)


def test_member_beside_without_an_end(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "t.npz", {})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("aside.x.event", b"")
    with pytest.raises(px.TraceError, match="expected a name like"):
        px.load(path)


def test_head_takes_what_stands_before_it() -> None:
    part = small(BESIDE).head(2)
    assert asides_of(part) == {
        "realloc_begin": {"event": [], "time_ns": []},
        "usable_size": {"event": [1, 1], "object": [0, 0], "size_bytes": [24, 24]},
        "failed": {"event": [0], "object": [2**64 - 1], "size_bytes": [2**63]},
    }
    assert part.call is not None
    assert part.call.tolist() == [1, 3]
    assert asides_of(small(BESIDE).head(4)) == asides_of(small(BESIDE))
    # About an object that the part does not have.
    early = small({"x": {"event": [0, 0], "object": [1, 0]}}).head(1)
    assert asides_of(early) == {"x": {"event": [0], "object": [0]}}


def test_by_arena_gives_each_what_is_about_it() -> None:
    whole = px.Trace(
        [A, A, R, F, D],
        [0, 1, 1, 0, -1],
        [8, 16, 24, 0, 0],
        arena=[0, 1, 1, 0, 1],
        asides={
            "realloc_begin": {"event": [2], "time_ns": [5]},
            "x": {"event": [0, 2, 4, 5], "object": [1, 0, -1, 1], "n": [1, 2, 3, 4]},
            "maps": {"event": [3], "address": [4096]},
        },
    )
    first, second = whole.by_arena()
    assert asides_of(first) == {
        "realloc_begin": {"event": [], "time_ns": []},
        "x": {"event": [1], "object": [0], "n": [2]},
        "maps": {"event": [], "address": []},
    }
    assert asides_of(second) == {
        "realloc_begin": {"event": [1], "time_ns": [5]},
        "x": {"event": [0, 3], "object": [0, 0], "n": [1, 4]},
        "maps": {"event": [], "address": []},
    }

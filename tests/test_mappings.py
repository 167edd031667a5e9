"""What a program mapped as a trace, against a model that knows every page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px

PAGE = 4096
MMAP, MUNMAP, MPROTECT, MREMAP = range(4)
READ, WRITE, EXEC = 1, 2, 4


def trace_of(calls: list[tuple[int, ...]], executable: bool | None = None) -> px.Trace:
    """Calls are (call, first page, pages, prot, old first page, old pages)."""
    n = len(calls)
    columns: dict[str, Any] = {
        "event": [0] * n,
        "thread": [0] * n,
        "time_ns": list(range(n)),
        "call": [c[0] for c in calls],
        "address": [c[1] * PAGE for c in calls],
        "size_bytes": [c[2] * PAGE for c in calls],
        "prot": [c[3] for c in calls],
        "flags": [0x22] * n,
        "old_address": [c[4] * PAGE for c in calls],
        "old_bytes": [c[5] * PAGE for c in calls],
    }
    return px.mappings_trace(px.Trace([], [], [], asides={"maps": columns}), executable)


def events(trace: px.Trace) -> list[tuple[int, int, int]]:
    columns = (trace.op.tolist(), trace.object.tolist(), (trace.size_bytes // PAGE).tolist())
    return list(zip(*columns, strict=True))


def test_parts_of_a_mapping_go_one_by_one() -> None:
    calls = [
        (MMAP, 10, 8, READ, 0, 0),
        (MUNMAP, 10, 2, 0, 0, 0),
        (MUNMAP, 16, 2, 0, 0, 0),
        (MUNMAP, 13, 1, 0, 0, 0),
        (MUNMAP, 5, 30, 0, 0, 0),
        (MUNMAP, 5, 30, 0, 0, 0),
    ]
    made = trace_of(calls)
    assert events(made) == [
        (px.OP_ALLOC, 0, 8),
        (px.OP_REALLOC, 0, 6),
        (px.OP_REALLOC, 0, 4),
        (px.OP_REALLOC, 0, 1),
        (px.OP_ALLOC, 1, 2),
        (px.OP_FREE, 0, 0),
        (px.OP_FREE, 1, 0),
    ]
    assert made.metadata["counts"] == {"unmaps_of_unknown": 1}


def test_mremap_is_a_realloc() -> None:
    calls = [
        (MMAP, 10, 4, READ, 0, 0),
        (MREMAP, 10, 6, 0, 10, 4),
        (MREMAP, 50, 9, 0, 10, 6),
        (MREMAP, 70, 2, 0, 52, 2),
        (MUNMAP, 50, 9, 0, 0, 0),
    ]
    assert events(trace_of(calls)) == [
        (px.OP_ALLOC, 0, 4),
        (px.OP_REALLOC, 0, 6),
        (px.OP_REALLOC, 0, 9),
        (px.OP_REALLOC, 0, 2),
        (px.OP_ALLOC, 1, 5),
        (px.OP_ALLOC, 2, 2),
        (px.OP_FREE, 0, 0),
        (px.OP_FREE, 1, 0),
    ]


def test_code_is_what_was_ever_executable() -> None:
    calls = [
        (MMAP, 10, 8, READ | WRITE, 0, 0),
        (MPROTECT, 12, 2, READ | EXEC, 0, 0),
        (MPROTECT, 12, 2, READ | WRITE, 0, 0),
        (MPROTECT, 12, 2, READ | EXEC, 0, 0),
        (MMAP, 30, 1, EXEC, 0, 0),
        (MUNMAP, 10, 8, 0, 0, 0),
    ]
    code = trace_of(calls, True)
    assert events(code) == [
        (px.OP_ALLOC, 0, 2),
        (px.OP_ALLOC, 1, 1),
        (px.OP_FREE, 0, 0),
    ]
    assert code.key is not None
    assert code.metadata["key_names"][code.key[0]] == "executable anonymous"
    data = trace_of(calls, False)
    assert events(data) == [
        (px.OP_ALLOC, 0, 8),
        (px.OP_REALLOC, 0, 2),
        (px.OP_ALLOC, 1, 4),
        (px.OP_FREE, 0, 0),
        (px.OP_FREE, 1, 0),
    ]
    assert len(trace_of(calls)) == 3


def test_a_trace_without_maps_is_refused() -> None:
    with pytest.raises(ValueError, match="no aside 'maps'"):
        px.mappings_trace(px.Trace([], [], []))


page, length = st.integers(0, 12), st.integers(0, 6)
one_call = st.one_of(
    st.tuples(st.just(MMAP), page, length, st.sampled_from([3, 5, 7]), st.just(0), st.just(0)),
    st.tuples(st.just(MUNMAP), page, length, st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just(MPROTECT), page, length, st.sampled_from([0, 3, 5]), st.just(0), st.just(0)),
)


@given(calls=st.lists(one_call, max_size=12), executable=st.sampled_from([None, True, False]))
def test_live_bytes_are_the_pages_that_are_mapped(
    calls: list[tuple[int, ...]], executable: bool | None
) -> None:
    pages: dict[int, bool] = {}
    for call, start, count, prot, *_ in calls:
        there = range(start, start + count)
        for number in there:
            if call == MMAP:
                pages[number] = bool(prot & EXEC)
            elif call == MUNMAP:
                pages.pop(number, None)
            elif prot & EXEC and number in pages:
                pages[number] = True
        wanted = sum(executable is None or code == executable for code in pages.values())
    made = trace_of(calls, executable)
    live = made.summary()["live_bytes_end"] if len(made) else 0
    assert live == (PAGE * wanted if calls else 0)

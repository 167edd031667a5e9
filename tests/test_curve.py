"""Every way to the counters of a byte cut: one pass, the arena, the arena on memory, the twin."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _core
from pyallocx.reference import arena as reference
from pyallocx.testing import traces
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Trace

INF = math.inf
# Just below, at and just above the rungs that short lists reach.
CUTS = (15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, 256, 2048, INF)


def trace_of(events, *, times=None):
    """Make a trace of (op, object, size_bytes, key, arena)."""
    op, thing, size, key, arena = np.array(events, np.int64).reshape(-1, 5).T
    return Trace(
        op=op.astype(np.uint8),
        object=(thing % 2**32).astype(np.uint32),
        size_bytes=size.astype(np.uint64),
        key=key.astype(np.uint32),
        arena=arena.astype(np.uint32),
        time_ns=None if times is None else np.array(times, np.uint64),
    )


def fill(events, live, peak, key=0, arena=0, size=8):
    """Let the free list of a key climb to `peak` entries and empty again; `live` grows with it."""
    made = sum(op == OP_ALLOC for op, *_ in events)
    while len(live) < peak:
        events.append((OP_ALLOC, made, size, key, arena))
        live.append(made)
        made += 1
    events += [(OP_FREE, live.pop(), 0, key, arena) for _ in range(peak)]
    for _ in range(peak):
        events.append((OP_ALLOC, made, size, key, arena))
        live.append(made)
        made += 1


@st.composite
def waves(draw):
    """Draw a trace of whole episodes, in which lists climb high for its length."""
    events, live = [], {}
    bit = st.integers(0, 1)
    episode = st.tuples(bit, bit, st.integers(1, 17), st.sampled_from((None, 0, 7, 9, 300)), bit)
    for arena, key, peak, size, dies in draw(st.lists(episode, min_size=1, max_size=7)):
        things = live.setdefault((arena, key), [])
        fill(events, things, peak, key, arena)
        if size is not None:
            events.append((OP_REALLOC, things[-1], size, key, arena))
        if dies:
            events.append((OP_DESTROY, -1, 0, 0, arena))
            live = {name: things for name, things in live.items() if name[0] != arena}
    left = [(*name, thing) for name, things in live.items() for thing in things]
    count = draw(st.integers(0, len(left)))
    events += [(OP_FREE, thing, 0, key, arena) for arena, key, thing in left[:count]]
    steps = draw(st.sampled_from((None, 0, 1, 3)))
    times = None if steps is None else [i * steps + i // 5 for i in range(len(events))]
    return trace_of(events, times=times)


@st.composite
def layouts(draw, trace, *, real):
    """Draw everything but the cut, for replays of `trace`; `real`: memory can have it."""
    return {
        "chunk_bytes": draw(st.sampled_from((64, 100, 520, 8192))),
        "chunk_header_bytes": draw(st.sampled_from((24, 32) if real else (0, 20, 24))),
        "alignment_bytes": draw(st.sampled_from((8, 16) if real else (4, 8))),
        "list_header_bytes": draw(st.sampled_from((0, 8, 16) if real else (0, 4, 8, 20))),
        "pointer_bytes": 8 if real else draw(st.sampled_from((4, 8))),
        "large_capacity": draw(st.sampled_from((0, 1, 3, 7, 500))),
        "max_object_bytes": draw(st.sampled_from((None, 8, 100))),
        "arena_by": "auto"
        if trace.arena is not None
        else draw(st.sampled_from(("auto", "one", "thread"))),
    }


def assert_same(row, expected, what):
    """Compare the counters that `expected` has."""
    for name, value in expected.items():
        if isinstance(value, float) and math.isnan(value):
            assert math.isnan(row[name]), (what, name)
        else:
            assert row[name] == value, (what, name)


def assert_all_ways_agree(trace, retain_bytes, layout, *, real):
    result = px.sweep(px.Arena, trace, retain_bytes=retain_bytes, **layout)
    assert len(result) == len(retain_bytes)
    for row, cut in zip(result, retain_bytes, strict=True):
        assert (row["status"], row["retain_bytes"]) == ("ok", cut)
        twin = reference.replay(trace, retain_bytes=cut, **layout)
        assert_same(row, twin, f"sweep at {cut}")
        for modelled in (True, False)[: 1 + real]:
            ours = px.replay_arena(trace, modelled=modelled, retain_bytes=cut, **layout)
            assert_same(ours.row, twin, f"arena, modelled={modelled}, at {cut}")


@given(
    trace=st.one_of(
        waves(), traces(max_events=120), traces(sizes=(8, 24), max_events=120, threads=2, keys=1)
    ),
    data=st.data(),
)
def test_all_ways_agree(trace, data):
    """Any trace, any layout, any cuts in any order."""
    real = data.draw(st.booleans(), label="real")
    layout = data.draw(layouts(trace, real=real), label="layout")
    cuts = data.draw(
        st.lists(st.sampled_from((0, *CUTS)), min_size=1, max_size=4, unique=True), label="cuts"
    )
    assert_all_ways_agree(trace, cuts, layout, real=real)


@pytest.mark.parametrize("peak", [1, 2, 4, 8, 16, 255, 256, 511, 512, 600])
def test_episodes_at_the_rungs(peak):
    """Peaks just below and above a rung, in one arena that ends and in one that does not."""
    events, live = [], []
    for p in (peak, peak, 3, peak, 1):
        fill(events, live, p)
    fill(events, [], 2, arena=1)
    events.append((OP_DESTROY, -1, 0, 0, 0))
    fill(events, [], 2)
    trace = trace_of(events, times=range(len(events)))
    layout = {"large_capacity": 3 if peak < 100 else 500}
    rung = reference.rung_for(peak)
    cuts = sorted({0, rung - 1, rung, 2048, INF})
    assert_all_ways_agree(trace, cuts, layout, real=True)


def test_reallocs():
    """One that keeps its key is nothing; any other is an allocation, then a free."""
    sizes = (1, 8, 0, 9, 16, 8, 100, 101, 104, 105, 8, 3)
    events = [(OP_ALLOC, 0, 8, 0, 0), (OP_ALLOC, 1, 16, 0, 0), (OP_FREE, 1, 0, 0, 0)]
    events += [(OP_REALLOC, 0, size, 0, 0) for size in sizes]
    trace = trace_of(events, times=range(len(events)))
    assert_all_ways_agree(trace, [0, 16, INF], {"max_object_bytes": 104}, real=True)
    row = px.replay_arena(trace, max_object_bytes=104).row
    # To 16 (which is free), to 8 again, to 104, out; back to 8.
    assert (row["bumps"], row["pops"], row["bypassed"]) == (3, 3, 1)


@pytest.mark.parametrize(("header", "width"), [(8, 8), (8, 4), (0, 8), (0, 4), (16, 8), (20, 4)])
def test_ladder(header, width):
    """The table of the core is the rule of the twin, to its end."""
    ladder = list(_core.ladder(header, width))
    assert ladder == list(reference.ladder(header, width))
    assert all(low < high for low, high in pairwise(ladder))


def test_many_keys():
    """Each key has a list of its own, however full the table of keys is."""
    events = []
    for key in range(150):
        fill(events, [], 1 + key % 3, key=key)
    trace = trace_of(events)
    assert_all_ways_agree(trace, [0, 16, INF], {}, real=True)
    assert len(px.replay_arena(trace).free_lists) == 150


@pytest.mark.parametrize("retain_bytes", [0, 15, 16, 32, 64, 2048, 2**64 - 1])
@pytest.mark.parametrize("large_capacity", [0, 1, 3, 500, 2**32 - 1])
def test_lean_path_counts_the_same(retain_bytes, large_capacity):
    """What an arena without meters counts is what one with them counts."""
    params = {"retain_bytes": retain_bytes, "large_capacity": large_capacity, "poison": 0}
    lean = _core.Arena(params | {"metered": 0})
    full = _core.Arena(params | {"metered": 1})
    handles = {lean: [], full: []}
    for peak in (1, 2, 4, 1, 8, 3, 2, 300, 1):
        for arena, live in handles.items():
            live += [arena.alloc(1, 8) for _ in range(peak - len(live))]
            for _ in range(peak):
                arena.free(1, live.pop())
            live += [arena.alloc(1, 8) for _ in range(peak)]
            arena.check()
        counters = ("pops", "pops_large", "bumps", "list_mallocs", "list_reallocs", "list_frees")
        for name in (*counters, "list_bytes_moved", "list_buffer_bytes", "freelist_bytes"):
            assert lean.stats()[name] == full.stats()[name], name


def replay(events, thresholds=None, *, modelled=True):
    """Start a replay of events that nobody has validated."""
    op, thing, size, key, arena = np.array(events, np.int64).T
    return _core.ArenaReplay(
        {},
        op.astype(np.uint8),
        thing.astype(np.uint32),
        size.astype(np.uint64),
        None,
        key.astype(np.uint32),
        arena.astype(np.uint32),
        None,
        int(thing.max()) + 1,
        int(arena.max()) + 1,
        2,
        0,
        retain_bytes=thresholds,
        modelled=modelled,
    )


@pytest.mark.parametrize("thresholds", [None, [0, 64]])
def test_objects_die_with_their_arena(thresholds):
    """A file that changed after it was validated: the object's list is another arena's now."""
    events = [
        (OP_ALLOC, 0, 8, 0, 0),
        (OP_DESTROY, 0, 0, 0, 0),
        (OP_ALLOC, 1, 8, 0, 1),
        (OP_FREE, 0, 0, 0, 0),
    ]
    for modelled in (True, False):
        with pytest.raises(px.TraceError, match="3"):
            replay(events, thresholds, modelled=modelled).step(10)


@pytest.mark.parametrize("thresholds", [[], [1], [0, 16, 16], [0, 16, 15]])
def test_thresholds_rise_from_zero(thresholds):
    """The one pass relies on it."""
    with pytest.raises(ValueError, match="threshold"):
        replay([(OP_ALLOC, 0, 8, 0, 0)], thresholds)

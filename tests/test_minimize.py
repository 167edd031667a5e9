"""Delta debugging: planted culprits, minimality as a property, a real mistake in an allocator."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_cases import traces

import pyallocx as px
from pyallocx.testing import ReferenceArena, wrong_arenas


def big(events, seed=5):
    return px.synthesize(events, seed=seed, threads=3, realloc_fraction=0.1)


def without_object(trace, number):
    keep = np.asarray(trace.object != number)
    keep |= trace.op == px.OP_DESTROY
    columns = {n: None if c is None else c[keep].astype(c.dtype) for n, c in columns_of(trace)}
    moved = (columns["op"] != px.OP_DESTROY) & (columns["object"] > number)
    columns["object"][moved] -= 1
    return px.Trace(**columns)


def without_event(trace, at):
    return px.Trace(**{n: None if c is None else np.delete(c, at) for n, c in columns_of(trace)})


def columns_of(trace):
    return trace.columns().items()


def assert_minimal(trace, fails):
    """Nothing less by one step is enough, found without the code under test."""
    assert fails(trace)
    for number in range(trace.n_objects):
        assert not fails(without_object(trace, number))
    for at in np.flatnonzero(trace.op != px.OP_ALLOC):
        assert not fails(without_event(trace, at))


def test_two_objects_alive_at_once():
    trace = big(3000)
    calls = []

    def fails(t):
        """An object of 100 to 120 bytes is allocated while one of 300 or more lives."""
        calls.append(len(t))
        large = set()
        for op, object, size in zip(t.op, t.object, t.size_bytes, strict=True):
            if op == px.OP_FREE:
                large.discard(object)
            elif size >= 300:
                large.add(object)
            else:
                large.discard(object)
                if op == px.OP_ALLOC and 100 <= size <= 120 and large:
                    return True
        return False

    small = px.minimize(trace, fails)
    assert small.op.tolist() == [px.OP_ALLOC] * 2
    assert small.size_bytes.tolist() == [300, 100]
    assert small.thread.tolist() == [0, 0]
    made = small.metadata["minimized"]
    assert made["calls"] == len(calls)
    assert made["from_events"] == 3000
    assert made["minimal"] is True
    # Few culprits are found by halving, not one object after the other.
    assert len(calls) < 150
    assert_minimal(small, fails)


def test_a_realloc_after_a_free_of_another_thread():
    trace = big(3000)

    def fails(t):
        owner, crossed = {}, False
        for op, object, size, thread in zip(t.op, t.object, t.size_bytes, t.thread, strict=True):
            if op == px.OP_ALLOC:
                owner[object] = thread
            elif op == px.OP_FREE:
                crossed |= owner[object] != thread
            elif crossed and size >= 70:
                return True
        return False

    # The generator has no frees across threads.
    thread = trace.thread.copy()
    thread[trace.op == px.OP_FREE] = 2
    trace = px.Trace(trace.op, trace.object, trace.size_bytes, thread=thread)
    small = px.minimize(trace, fails)
    assert sorted(small.op.tolist()) == [px.OP_ALLOC, px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC]
    assert small.size_bytes[small.op == px.OP_REALLOC].tolist() == [70]
    assert small.size_bytes[small.op == px.OP_ALLOC].tolist() == [1, 1]
    assert sorted(set(small.thread.tolist())) == [0, 1]
    assert_minimal(small, fails)


def test_what_nobody_needs_goes():
    made = big(400)
    n = len(made)
    alignment = np.where(made.op == px.OP_ALLOC, 5, 0)
    trace = px.Trace(
        made.op, made.object, made.size_bytes, thread=made.thread, align_log2=alignment,
        time_ns=np.arange(n), key=np.arange(n) % 7, arena=np.zeros(n, dtype=int),
        metadata={"program": "x"},
    )  # fmt: skip
    small = px.minimize(trace, lambda t: t.n_objects >= 3)
    assert len(small) == 3
    for name in ("align_log2", "time_ns", "key", "arena"):
        assert getattr(small, name) is None
    assert small.metadata["program"] == "x"

    def aligned(t):
        return t.align_log2 is not None and t.n_objects >= 2 and 5 in t.align_log2[1:]

    small = px.minimize(trace, aligned)
    assert small.align_log2.tolist() == [0, 5]


def test_arenas_keep_their_ends():
    trace = px.synthesize(3000, seed=2, arenas=px.synth.Arenas(5, mean_events=300))

    def fails(t):
        """An arena ends with two objects in it."""
        if t.arena is None:
            return False
        inside = {}
        for op, object, arena in zip(t.op, t.object, t.arena, strict=True):
            if op == px.OP_ALLOC:
                inside.setdefault(arena, set()).add(object)
            elif op == px.OP_FREE:
                inside[arena].discard(object)
            elif op == px.OP_DESTROY and len(inside.pop(arena, ())) == 2:
                return True
        return False

    small = px.minimize(trace, fails)
    assert small.op.tolist() == [px.OP_ALLOC, px.OP_ALLOC, px.OP_DESTROY]
    assert small.arena.tolist() == [0, 0, 0]
    assert_minimal(small, fails)


@given(traces(max_events=25), st.integers(0, 2**32), st.booleans())
def test_nothing_less_by_one_step_is_enough(trace, seed, even):
    """A predicate as odd as can be, which holds on the whole."""
    first = {int(op) for op in trace.op}

    def fails(t):
        if len(t) == len(trace):
            return True
        mix = int(t.size_bytes.astype(object).sum()) * 31 + len(t) * 7 + seed
        enough = {int(op) for op in t.op} == first
        return enough and (not even or mix % 3 != 0)

    asked = []

    def counts(t):
        asked.append(t)
        return fails(t)

    small = px.minimize(trace, counts)
    assert_minimal(small, fails)
    assert small == px.minimize(trace, fails)
    columns = [tuple(None if c is None else c.tobytes() for _, c in columns_of(t)) for t in asked]
    again = [columns[0], columns[-1]]
    assert columns[1] == columns[0]
    assert columns[-1] in columns[1:-1]
    assert len(set(columns)) == len(columns) - 2, f"asked about twice, beside {again}"


def test_calls_are_few_at_first():
    trace = px.synthesize(300_000, seed=1)
    needed = trace.n_objects // 3
    key = np.zeros(len(trace), dtype=np.uint32)
    key[np.flatnonzero(trace.op == px.OP_ALLOC)[needed]] = 1
    marked = px.Trace(trace.op, trace.object, trace.size_bytes, key=key)
    small = px.minimize(marked, lambda t: t.key is not None and bool((t.key == 1).any()))
    assert len(small) == 1
    assert small.metadata["minimized"]["calls"] < 3 * math.log2(trace.n_objects) + 20


def test_limits_and_errors():
    trace = big(500)
    with pytest.raises(ValueError, match=r"does not hold on Trace\(500 events"):
        px.minimize(trace, lambda t: False)
    for wrong in (None, 5, "trace.npz"):
        with pytest.raises(TypeError, match="trace must be a Trace, not"):
            px.minimize(wrong, lambda t: True)
    with pytest.raises(TypeError, match="callable"):
        px.minimize(trace, "x")
    with pytest.raises(ValueError, match="max_calls"):
        px.minimize(trace, lambda t: True, max_calls=0)
    with pytest.raises(ZeroDivisionError):
        px.minimize(trace, lambda t: len(t) < 500 or 1 // (500 - len(t)))
    stopped = px.minimize(trace, lambda t: t.n_objects >= 3, max_calls=6)
    made = stopped.metadata["minimized"]
    assert (made["calls"], made["minimal"]) == (6, False)
    assert 3 <= stopped.n_objects < trace.n_objects
    empty = px.minimize(trace, lambda t: True)
    assert len(empty) == 0
    assert px.minimize(empty, lambda t: True) == empty


def answering(answers, then):
    """Return a predicate that gives these answers one after the other."""
    rest = list(answers)
    return lambda _: rest.pop(0) if rest else then


@pytest.mark.parametrize(
    ("answers", "then", "differ"),
    [
        ([True, False], True, True),  # the whole trace, asked again
        ([True, True, True], False, True),  # the result, asked again
        ([True, True], False, True),  # the same where nothing could go
        ([], True, False),
    ],
)
def test_a_judge_that_contradicts_itself_is_noticed(answers, then, differ):
    small = px.minimize(big(100), answering(answers, then))
    made = small.metadata["minimized"]
    assert (made["answers_differ"], made["minimal"]) == (differ, not differ)
    assert big(100).metadata.get("minimized") is None


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_few_calls_are_not_exceeded_by_asking_again(limit):
    calls = []

    def fails(t):
        calls.append(len(t))
        return len(calls) == 1

    small = px.minimize(big(100), fails, max_calls=limit)
    assert len(calls) == small.metadata["minimized"]["calls"] <= limit
    assert small.metadata["minimized"]["answers_differ"] is (limit > 2)


def test_ctrl_c_has_the_best_so_far():
    trace = big(500)
    calls = []

    def fails(t):
        calls.append(len(t))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return t.n_objects >= 3

    with pytest.raises(KeyboardInterrupt) as caught:
        px.minimize(trace, fails)
    assert isinstance(caught.value, px.MinimizeInterrupted)
    assert 3 <= caught.value.best.n_objects < trace.n_objects
    assert caught.value.best.metadata["minimized"]["minimal"] is False


def replay(make, trace, **params):
    """Run a trace through an arena; keys are sizes. What the arena then says of itself."""
    arena = make(**params)
    handles = {}
    for op, object, size in zip(
        trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True
    ):
        if op != px.OP_ALLOC and object in handles:
            key, handle = handles.pop(object)
            arena.free(key, handle)
        if op in (px.OP_ALLOC, px.OP_REALLOC):
            key = max(size, 1)
            handles[object] = key, arena.alloc(key, key)
    return arena.stats()


def test_a_mistake_in_an_allocator_is_hunted_down():
    """An arena that frees a buffer of exactly retain_bytes, on what python3 did."""
    trace = px.load_shipped("python3").head(3000)
    params = {"policy": "byte_cut", "retain_bytes": 64}
    wrong = wrong_arenas["ThresholdOffByOne"]

    def fails(t):
        return replay(wrong, t, **params) != replay(ReferenceArena, t, **params)

    small = px.minimize(trace, fails)
    assert small.metadata["minimized"]["minimal"]
    assert len(small) <= 40
    # It takes a list whose buffer came to 64 bytes (7 entries at most) and that was then emptied.
    frees = int(np.count_nonzero(small.op == px.OP_FREE))
    assert 4 <= frees <= 7
    assert_minimal(small, fails)


def test_what_a_later_step_makes_needless_goes_too():
    trace = px.Trace(op=[px.OP_ALLOC] * 3, object=[0, 1, 2], size_bytes=[100, 100, 100])

    def fails(part):
        # One object will do, but only when its size is small, which is tried after the objects.
        return len(part) > 1 or (len(part) == 1 and int(part.size_bytes[0]) < 50)

    small = px.minimize(trace, fails)
    assert len(small) == 1
    assert small.metadata["minimized"]["minimal"]

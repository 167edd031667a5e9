"""Synthetic traces: they obey every rule, are what was asked for, and never change."""

import doctest
import hashlib
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _portable, synth
from pyallocx.synth import (
    Arenas,
    Empirical,
    Exponential,
    Fixed,
    Keys,
    LogNormal,
    Phases,
    PowerLaw,
    Stack,
    Uniform,
)
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC

SIZES = st.one_of(
    st.builds(Fixed, st.integers(1, 1 << 48)),
    st.tuples(st.integers(1, 1000), st.integers(0, 1 << 40)).map(
        lambda pair: Uniform(pair[0], pair[0] + pair[1])
    ),
    st.builds(LogNormal, st.floats(1, 1e6), st.floats(0, 10)),
    st.builds(PowerLaw, st.integers(1, 1 << 20), st.floats(1, 10)),
    st.lists(st.integers(0, 1 << 48), min_size=1, max_size=5).map(Empirical),
)
LIFETIMES = st.one_of(
    st.builds(Exponential, st.floats(1, 1e12)),
    st.builds(Phases, st.integers(1, 300), st.floats(0, 1)),
    st.builds(Stack, st.integers(1, 100)),
)
ARENAS = st.one_of(
    st.integers(1, 30),
    st.tuples(st.integers(1, 20), st.floats(20, 1000)).map(lambda pair: Arenas(*pair)),
)
KEYS_OR_REALLOCS = st.one_of(
    st.builds(dict, keys=st.one_of(st.integers(1, 50), st.builds(Keys, st.integers(1, 50)))),
    st.builds(dict, realloc_fraction=st.floats(0, 0.999)),
)


def walk(trace):
    """Assert the rules of a trace, event by event; return the objects alive at its end."""
    live, home, bound, objects = set(), {}, {}, 0
    arenas = [0] * len(trace) if trace.arena is None else trace.arena.tolist()
    keys = [0] * len(trace) if trace.key is None else trace.key.tolist()
    for op, object_, size, thread, arena, key in zip(
        trace.op.tolist(),
        trace.object.tolist(),
        trace.size_bytes.tolist(),
        trace.thread.tolist(),
        arenas,
        keys,
        strict=True,
    ):
        if op == OP_DESTROY:
            assert trace.arena is not None
            assert (object_, size, key) == (0xFFFFFFFF, 0, 0)
            gone = {other for other in live if home[other] == arena}
            assert any(owner == arena for owner in home.values()), "an arena never used"
            for other in [other for other in home if home[other] == arena]:
                del home[other]
            live -= gone
            continue
        if op == OP_ALLOC:
            assert object_ == objects
            objects += 1
            live.add(object_)
            home[object_] = arena
            bound[object_] = (thread, key)
        assert object_ in live
        assert home[object_] == arena
        assert bound[object_] == (thread, key)
        if op == OP_FREE:
            assert size == 0
            live.remove(object_)
    return live


@given(
    events=st.integers(0, 700),
    seed=st.integers(0, (1 << 64) - 1),
    sizes=SIZES,
    lifetimes=LIFETIMES,
    arenas=ARENAS,
    threads=st.integers(1, 5),
    more=KEYS_OR_REALLOCS,
)
def test_every_combination_is_a_trace(events, seed, sizes, lifetimes, arenas, threads, more):
    arguments = dict(
        seed=seed, sizes=sizes, lifetimes=lifetimes, arenas=arenas, threads=threads, **more
    )
    trace = px.synthesize(events, **arguments)
    assert len(trace) == events
    walk(trace)
    assert (trace.arena is None) == (arenas in (1, Arenas(1)))
    assert (trace.key is None) == ("keys" not in more)
    for column in (trace.thread, trace.arena):
        if column is not None and events:  # dense, in the order of first use
            used, first = np.unique(column, return_index=True)
            assert used.tolist() == list(range(len(used)))
            assert (np.diff(first) > 0).all()
    wanted = min(round(events * more.get("realloc_fraction", 0.0)), max(events - 1, 0))
    assert np.count_nonzero(trace.op == OP_REALLOC) == wanted
    assert trace == px.synthesize(events, **arguments)


def test_seeds_differ():
    assert not np.array_equal(
        px.synthesize(100, seed=1).size_bytes, px.synthesize(100, seed=2).size_bytes
    )


@pytest.mark.parametrize(
    ("arguments", "digest"),
    [
        (
            {
                "seed": 42,
                "sizes": LogNormal(80, 0.7),
                "lifetimes": Exponential(300),
                "arenas": Arenas(5, 4_000),
                "threads": 3,
                "realloc_fraction": 0.1,
            },
            "4095cb622689211f03fd2aa045e22be9758032ab98f538075c03e22d0e61e482",
        ),
        (
            {"seed": 43, "sizes": PowerLaw(16, 1.7), "lifetimes": Phases(100, 0.2), "keys": 40},
            "5483debde9f0486ce4f7e5521ee6c4105c9019dacedb5a6921e942ef27f3109e",
        ),
        (
            {"seed": 44, "sizes": Uniform(), "lifetimes": Stack(20), "arenas": Arenas(3)},
            "f01b5f3cd00af8942563665ce536a7683dffccf6128645471fd3c875efa3a600",
        ),
    ],
    ids=["exponential", "phases", "stack"],
)
def test_the_stream_never_changes(arguments, digest):
    # A change here breaks every result that was quoted with a seed: a new release says so.
    trace = px.synthesize(20_000, **arguments)
    found = hashlib.sha256()
    for name in ("op", "object", "size_bytes", "thread", "arena", "key"):
        column = getattr(trace, name)
        if column is not None:
            found.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
    assert found.hexdigest() == digest


# --- sizes ------------------------------------------------------------------------------------


def sizes_of(sizes, events=200_000):
    trace = px.synthesize(events, seed=5, sizes=sizes)
    return trace.size_bytes[trace.op == OP_ALLOC].astype(np.int64)


def test_lognormal_has_its_median_and_spread():
    found = sizes_of(LogNormal(median_bytes=5_000, sigma=0.8, max_bytes=1 << 30))
    assert statistics.median(found.tolist()) == pytest.approx(5_000, rel=0.02)
    assert np.log(found).std() == pytest.approx(0.8, rel=0.02)
    assert sizes_of(LogNormal(100, 2.0, max_bytes=150)).max() == 150
    assert sizes_of(LogNormal(1, 2.0)).min() == 1


def test_uniform_has_its_ends_and_mean():
    found = sizes_of(Uniform(10, 19))
    assert np.bincount(found, minlength=20)[10:].min() / len(found) == pytest.approx(0.1, rel=0.05)
    assert (found.min(), found.max()) == (10, 19)


@pytest.mark.parametrize("exponent", [1.0, 1.0 + 1e-12, 1.5, 2.0, 3.0])
def test_power_law_has_its_tail(exponent):
    low, high = 1_000, 1_000_000
    found = sizes_of(PowerLaw(low, exponent, high))
    assert found.min() >= low
    assert found.max() <= high
    for size in (2_000, 10_000, 100_000):
        a = exponent - 1
        if a < 1e-9:
            above = math.log(high / size) / math.log(high / low)
        else:
            above = ((size / low) ** -a - (high / low) ** -a) / (1 - (high / low) ** -a)
        assert (found >= size).mean() == pytest.approx(above, rel=0.05, abs=5e-4)


def test_empirical_has_its_weights():
    found = sizes_of(Empirical([7, 100, 3, 5], weights=[0, 3, 1, 0]))
    assert set(found.tolist()) == {3, 100}
    assert (found == 100).mean() == pytest.approx(0.75, rel=0.02)
    assert set(sizes_of(Empirical([1, 2], weights=[1e300, 1e300])).tolist()) == {1, 2}


def test_sizes_of_another_trace():
    source = px.synthesize(20_000, sizes=Empirical([16, 48], weights=[1, 4]))
    found = sizes_of(source)
    assert set(found.tolist()) == {16, 48}
    assert (found == 48).mean() == pytest.approx(0.8, rel=0.02)
    assert set(sizes_of(33).tolist()) == {33}


# --- lifetimes --------------------------------------------------------------------------------


def births_and_ages(trace):
    """For each object, in order: the event that makes it, and the events until it is freed."""
    births = np.flatnonzero(trace.op == OP_ALLOC)
    deaths = np.full(len(births), np.iinfo(np.int64).max)
    frees = np.flatnonzero(trace.op == OP_FREE)
    deaths[trace.object[frees]] = frees
    return births, deaths - births


@pytest.mark.parametrize("realloc_fraction", [0.0, 0.4])
def test_exponential_has_its_mean(realloc_fraction):
    trace = px.synthesize(
        300_000, lifetimes=Exponential(500), realloc_fraction=realloc_fraction, seed=3
    )
    births, ages = births_and_ages(trace)
    ages = ages[births < 200_000]
    assert ages.mean() == pytest.approx(500, rel=0.03)
    assert np.median(ages) == pytest.approx(500 * math.log(2), rel=0.03)
    live = np.cumsum(np.array([1, -1, 0])[trace.op])
    assert live[100_000:].mean() == pytest.approx(250 * (1 - realloc_fraction), rel=0.05)


def test_exponential_mean_holds_while_the_heap_grows():
    trace = px.synthesize(500_000, lifetimes=Exponential(20_000), seed=4)
    births, ages = births_and_ages(trace)
    assert ages[births < 10_000].mean() == pytest.approx(20_000, rel=0.05)


def test_phases_end():
    trace = px.synthesize(100_000, lifetimes=Phases(allocations=100), seed=6)
    # 100 allocations, then their 100 frees, oldest first, and so on.
    assert (trace.op.reshape(-1, 2, 100) == [[[OP_ALLOC], [OP_FREE]]]).all()
    assert (trace.object.reshape(-1, 2, 100)[:, 0] == trace.object.reshape(-1, 2, 100)[:, 1]).all()


def test_phases_leave_survivors():
    trace = px.synthesize(400_000, lifetimes=Phases(allocations=200, surviving=0.25), seed=6)
    live, at_end, after, allocated = set(), 0, 0, 0
    freeing = False
    for op, object_ in zip(trace.op.tolist(), trace.object.tolist(), strict=True):
        if op == OP_ALLOC:
            if freeing:
                after += len(live)
                freeing = False
            live.add(object_)
            allocated += 1
        else:
            if not freeing:
                assert allocated % 200 == 0
                at_end += len(live)
                freeing = True
            live.remove(object_)
    assert after / at_end == pytest.approx(0.25, rel=0.02)


def test_phases_where_all_survive():
    trace = px.synthesize(1_000, lifetimes=Phases(10, surviving=1))
    assert (trace.op == OP_ALLOC).all()


@pytest.mark.parametrize("max_depth", [1, 2, 30])
def test_stack_is_last_in_first_out(max_depth):
    trace = px.synthesize(50_000, lifetimes=Stack(max_depth), seed=8)
    stack, depths = [], np.zeros(max_depth + 1)
    for op, object_ in zip(trace.op.tolist(), trace.object.tolist(), strict=True):
        if op == OP_ALLOC:
            stack.append(object_)
        else:
            assert stack.pop() == object_
        depths[len(stack)] += 1
    # Equally likely, but for the two ends, which have one neighbour each.
    depths[[0, -1]] *= 2
    assert depths / depths.mean() == pytest.approx(np.ones(max_depth + 1), abs=0.25)


# --- arenas, types, threads, reallocs ---------------------------------------------------------


@pytest.mark.parametrize("realloc_fraction", [0.0, 0.4])
def test_arenas_live_as_long_as_asked(realloc_fraction):
    trace = px.synthesize(
        400_000,
        arenas=Arenas(10, mean_events=5_000),
        realloc_fraction=realloc_fraction,
        seed=9,
    )
    assert len(np.unique(trace.arena)) == 10
    destroys = np.count_nonzero(trace.op == OP_DESTROY)
    # In the clock in which the frees count that the destroys made needless.
    needless = np.count_nonzero(trace.op == OP_ALLOC) - np.count_nonzero(trace.op == OP_FREE)
    assert (400_000 + needless) * 10 / destroys == pytest.approx(5_000, rel=0.08)
    walk(trace)


def test_arenas_that_never_end():
    trace = px.synthesize(10_000, arenas=24)
    assert len(np.unique(trace.arena)) == 24
    assert not (trace.op == OP_DESTROY).any()


def test_keys_are_types_with_one_size():
    trace = px.synthesize(100_000, keys=Keys(50, skew=1.0), seed=10)
    allocations = trace.op == OP_ALLOC
    keys, sizes = trace.key[allocations], trace.size_bytes[allocations]
    assert len(set(zip(keys.tolist(), sizes.tolist(), strict=True))) == 50
    counts = np.bincount(keys)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.15)
    even = px.synthesize(100_000, keys=Keys(50, skew=0.0))
    counts = np.bincount(even.key[even.op == OP_ALLOC])
    assert counts.min() / counts.max() > 0.75


def test_threads_share_the_objects():
    trace = px.synthesize(40_000, threads=4)
    assert np.bincount(trace.thread).min() > 8_000


def test_reallocs_are_spread_over_lives():
    trace = px.synthesize(
        100_000, lifetimes=Exponential(1_000), sizes=Uniform(1, 9), realloc_fraction=0.25, seed=2
    )
    births, ages = births_and_ages(trace)
    at = np.flatnonzero(trace.op == OP_REALLOC)
    where = (at - births[trace.object[at]]) / ages[trace.object[at]]
    assert where[at < 80_000].mean() == pytest.approx(0.5, abs=0.02)
    assert np.bincount(trace.size_bytes[at].astype(int))[1:].min() > 25_000 / 9 * 0.9


# --- arguments --------------------------------------------------------------------------------


def test_names_and_numbers_stand_for_models():
    named = px.synthesize(500, sizes="powerlaw", lifetimes="phases", arenas=3, keys=9)
    models = {"sizes": PowerLaw(), "lifetimes": Phases(), "arenas": Arenas(3), "keys": Keys(9)}
    assert named == px.synthesize(500, **models)


def test_metadata_says_how_to_make_it_again():
    metadata = px.synthesize(10, seed=3, lifetimes=Stack(5), sizes=Empirical([1, 2])).metadata
    assert metadata["seed"] == 3
    assert metadata["lifetimes"] == "Stack(max_depth=5)"
    assert metadata["sizes"] == "Empirical(2 sizes)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: px.synthesize(-1), "events must be between 0 and 2147483648, got -1"),
        (lambda: px.synthesize(1, seed=-1), "seed must be between 0 and"),
        (lambda: px.synthesize(1, threads=0), "threads must be between 1 and 1048576, got 0"),
        (lambda: px.synthesize(1, arenas=0), "arenas must be between 1 and"),
        (lambda: px.synthesize(1, keys=0), "keys must be between 1 and"),
        (lambda: px.synthesize(1, sizes=0), "sizes must be between 1 and"),
        (lambda: px.synthesize(1, sizes="normal"), "sizes must be one of fixed, uniform, "),
        (lambda: px.synthesize(1, lifetimes="x"), "lifetimes must be one of exponential, phases"),
        (lambda: px.synthesize(1, realloc_fraction=1.0), "realloc_fraction must be between 0 and"),
        (lambda: px.synthesize(1, realloc_fraction=math.nan), "realloc_fraction must be .* nan"),
        (lambda: px.synthesize(1, keys=2, realloc_fraction=0.1), "realloc_fraction must be 0 with"),
        (lambda: Fixed(0), "size_bytes must be between 1 and 281474976710656, got 0"),
        (lambda: Uniform(9, 8), r"low_bytes must be at most high_bytes \(8\), got 9"),
        (lambda: LogNormal(0.5), "median_bytes must be between 1 and"),
        (lambda: LogNormal(sigma=-1), "sigma must be between 0 and 10, got -1"),
        (lambda: LogNormal(100, max_bytes=99), "max_bytes must be between 100 and"),
        (lambda: PowerLaw(exponent=0.9), "exponent must be between 1 and 10, got 0.9"),
        (lambda: PowerLaw(10, max_bytes=9), r"min_bytes must be at most max_bytes \(9\), got 10"),
        (lambda: Empirical([]), "size_bytes must hold at least one size"),
        (lambda: Empirical([-1]), "size_bytes must be between 0 and"),
        (lambda: Empirical([1], [-1]), "weights must be between 0 and"),
        (lambda: Empirical([1], [1, 2]), r"weights must be as many as the sizes \(1\), got 2"),
        (lambda: Empirical([1], [0]), "weights must hold at least one number above 0"),
        (lambda: Exponential(0.5), "mean_events must be between 1 and"),
        (lambda: Phases(0), "allocations must be between 1 and"),
        (lambda: Phases(surviving=1.1), "surviving must be between 0 and 1, got 1.1"),
        (lambda: Stack(0), "max_depth must be between 1 and 65535, got 0"),
        (lambda: Stack(1 << 16), "max_depth must be between 1 and 65535, got 65536"),
        (lambda: Arenas(0), "count must be between 1 and"),
        (lambda: Arenas(8, 7), "mean_events must be between 8 and"),
        (lambda: Keys(1, -1), "skew must be between 0 and 10, got -1"),
    ],
)
def test_a_value_out_of_range_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: px.synthesize(1.5), "events must be an integer, got 1.5"),
        (lambda: px.synthesize(1, sizes=None), "sizes must be an integer, got None"),
        (lambda: px.synthesize(1, lifetimes=3), "lifetimes must be a name or a model, got 3"),
        (lambda: Exponential("long"), "mean_events must be a number, got 'long'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(make, message):
    with pytest.raises(TypeError, match=message):
        make()


# --- the functions underneath -----------------------------------------------------------------


def test_functions_agree_with_the_library():
    u = _portable.Stream(1, 0).uniform(5_000)
    for x in (u, 1e9 * u, 1e-300 * u, 1.0 + 1e-9 * u):
        assert _portable.log(x) == pytest.approx([math.log(v) for v in x], rel=1e-14, abs=1e-24)
    x = 1400.0 * u - 700.0
    assert _portable.exp(x) == pytest.approx([math.exp(v) for v in x], rel=1e-14)
    normal = statistics.NormalDist()
    p = np.concatenate([u, u * 1e-12, 1 - u * 1e-12, [2.0**-53, 1 - 2.0**-53]])
    found = _portable.normal_quantile(p)
    assert found == pytest.approx([normal.inv_cdf(v) for v in p], rel=1e-13, abs=1e-13)


def test_uniform_numbers_are_inside():
    class Extremes:
        def random_raw(self, n):
            return np.array([0, (1 << 64) - 1], dtype=np.uint64)

    stream = _portable.Stream(0, 0)
    stream._bits = Extremes()
    assert stream.uniform(2).tolist() == [2.0**-53, 1 - 2.0**-53]
    assert stream.below(2, 1 << 47).tolist() == [0, (1 << 47) - 1]


def test_examples():
    assert doctest.testmod(synth).failed == 0

"""Profiles themselves, and what a trace weighs by size."""

import copy
import json
import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _traceprofile
from pyallocx.reference.profile import profile_of_trace
from pyallocx.testing import traces

WEIGHTS = ("count", "peak", "end", "byte_time")
SIZES = st.one_of(st.integers(0, 100), st.integers(0, 2**48))
ENTRIES = st.lists(st.tuples(SIZES, st.integers(1, 2**20)), min_size=1, max_size=30)


def of(entries, **options):
    return px.Profile([size for size, _ in entries], [count for _, count in entries], **options)


def as_dict(profile):
    return dict(zip(profile.sizes.tolist(), profile.counts.tolist(), strict=True))


# ---- the histogram ------------------------------------------------------------------------------


@given(ENTRIES)
def test_adds_up_what_is_there_twice(entries):
    sums = Counter()
    for size, count in entries:
        sums[size] += count
    profile = of(entries, name="x")
    assert profile.sizes.dtype == np.uint64
    assert profile.counts.dtype == np.float64
    assert as_dict(profile) == sums
    assert profile.sizes.tolist() == sorted(sums)
    assert len(profile) == len(sums)
    assert profile.total_count == sum(sums.values())
    assert math.isclose(profile.total_bytes, sum(s * c for s, c in sums.items()), rel_tol=1e-15)
    assert profile == of(entries[::-1])
    assert profile != profile.scaled(2)


@pytest.mark.parametrize(
    ("sizes", "counts", "said"),
    [
        ([], [], "empty"),
        ([16, 48], [1, 0], "the count of size 48 is 0"),
        ([16, 48], [1, -2], "the count of size 48 is -2"),
        ([16, 48], [math.nan, 2], "the count of size 16 is nan"),
        ([16, 48], [1, math.inf], "the count of size 48 is inf"),
        ([16], [10**400], "float"),
        ([16, 16], [1e308, 1e308], "too large"),
        ([2**48], [1e300], "too large"),
        ([16, 2**48 + 1], [1, 1], "size 281474976710657 is outside"),
        ([16, 2**70], [1, 1], "size 1180591620717411303424 is outside"),
        ([16, -1], [1, 1], "size -1 is outside"),
        ([16, 32], [1], "shape"),
        ([[16]], [[1]], "dimensions"),
    ],
)
def test_refuses(sizes, counts, said):
    with pytest.raises(ValueError, match=said):
        px.Profile(sizes, counts)


@pytest.mark.parametrize("sizes", [[1.5], ["a"], [True, None], [16.0]])
def test_sizes_are_integers(sizes):
    with pytest.raises(TypeError, match="expected integers"):
        px.Profile(sizes, [1] * len(sizes))


def test_is_immutable():
    columns = np.array([16, 32], np.uint64), np.array([1.0, 2.0])
    about = {"a": [1]}
    profile = px.Profile(*columns, metadata=about)
    columns[0][0], columns[1][0] = 17, 5
    about["a"].append(2)
    assert as_dict(profile) == {16: 1, 32: 2}
    assert profile.metadata == {"a": [1]}
    for array in (profile.sizes, profile.counts):
        with pytest.raises(ValueError):
            array.setflags(write=True)
        with pytest.raises(ValueError):
            array[0] = 1
    with pytest.raises(AttributeError, match="immutable"):
        profile.name = "x"
    with pytest.raises(TypeError):
        profile.metadata["b"] = 1
    with pytest.raises(TypeError):
        hash(profile)
    assert copy.deepcopy(profile) is profile
    again = pickle.loads(pickle.dumps(profile))
    assert again == profile
    assert again.metadata == profile.metadata
    with pytest.raises(ValueError):
        px.Profile([1], [1], metadata={"a": math.nan})


def test_says_what_it_is():
    assert repr(px.Profile([16], [2.5])) == "Profile(1 size, count 2.50, 40 B)"
    assert px.Profile([16], [1]) != 3


@given(ENTRIES, st.floats(0, 1), st.sampled_from(["count", "bytes"]))
def test_quantile_is_the_first_size_that_reaches_the_share(entries, share, weighted):
    profile = of(entries)
    size = profile.quantile(share, weighted=weighted)
    held = np.cumsum(profile.counts * (1 if weighted == "count" else profile.sizes))
    reached = [int(s) for s, h in zip(profile.sizes, held, strict=True) if h >= share * held[-1]]
    assert size == reached[0]


def test_quantile_refuses():
    profile = px.Profile([1, 2], [1, 1])
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="share"):
            profile.quantile(share)
    with pytest.raises(ValueError, match="weighted"):
        profile.quantile(0.5, weighted="size")


def test_below():
    profile = px.Profile([16, 32, 48], [1, 2, 3], name="x", metadata={"a": 1})
    part = profile.below(32)
    assert as_dict(part) == {16: 1, 32: 2}
    assert (part.name, part.metadata) == ("x", {"a": 1})
    with pytest.raises(ValueError, match="the smallest is 16"):
        profile.below(15)


@given(ENTRIES, ENTRIES)
def test_combine_makes_what_it_says_equal(one, other):
    one, other = of(one, name="one"), of(other, name="other")
    both = px.Profile.combine([one, other], weights="count")
    assert both.total_count == one.total_count + other.total_count
    assert both.name == "one + other"
    equal = px.Profile.combine([one, other], weights="equal")
    factors = [part["factor"] for part in equal.metadata["parts"]]
    shares = [f * p.total_count for f, p in zip(factors, (one, other), strict=True)]
    assert shares == pytest.approx([both.total_count / 2] * 2)
    assert equal.total_count == pytest.approx(both.total_count)
    if one.total_bytes and other.total_bytes:
        by_bytes = px.Profile.combine([one, other])
        factors = [part["factor"] for part in by_bytes.metadata["parts"]]
        shares = [f * p.total_bytes for f, p in zip(factors, (one, other), strict=True)]
        assert shares == pytest.approx([both.total_bytes / 2] * 2)
    twice = px.Profile.combine([one, one], weights=[1, 0.5])
    assert twice == one.scaled(1.5)


def test_combine_keeps_what_all_agree_on():
    one = px.Profile([1], [1], metadata={"sizes": "requests", "weight": "count"})
    other = px.Profile([1], [1], metadata={"sizes": "requests", "weight": "end"})
    about = px.Profile.combine([one, other]).metadata
    assert about["sizes"] == "requests"
    assert "weight" not in about


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("size", "allowed are"),
        ([1], "1 weights for 2"),
        ([1, 0], "factor is 0"),
        ([1, math.nan], "factor is nan"),
        ([1, math.inf], "factor is inf"),
        ("bytes", "no bytes"),
    ],
)
def test_combine_refuses(weights, said):
    with pytest.raises(ValueError, match=said):
        px.Profile.combine([px.Profile([0], [1]), px.Profile([1], [1])], weights=weights)
    with pytest.raises(ValueError, match="no profile"):
        px.Profile.combine([])


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf])
def test_scaled_refuses(factor):
    with pytest.raises(ValueError, match="factor"):
        px.Profile([1], [1]).scaled(factor)


@given(
    st.lists(st.tuples(SIZES, st.floats(1e-300, 1e200)), min_size=1, max_size=10),
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=3)), max_size=2),
)
def test_save_and_load(tmp_path_factory, entries, name, metadata):
    profile = of(entries, name=name, metadata=metadata)
    path = tmp_path_factory.mktemp("saved") / "p.txt"
    profile.save(path)
    again = px.load_profile(path)
    assert again == profile
    assert again.name == name
    assert again.metadata.items() >= metadata.items()


def test_to_pandas():
    frame = px.Profile([32, 16], [1, 2]).to_pandas()
    assert frame.to_dict("list") == {"size_bytes": [16, 32], "count": [2.0, 1.0]}


def test_summary_is_json():
    summary = px.Profile([16, 32, 0], [10, 2, 5]).summary(top=1)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["most_bytes"] == [
        {"size_bytes": 16, "count": 10.0, "bytes": 160.0, "share": 160 / 224}
    ]
    assert summary["size_percentiles"]["count"]["50"] == 16
    assert px.Profile([0], [5]).summary()["most_bytes"][0]["share"] == 0


# ---- of a trace ---------------------------------------------------------------------------------


def check(trace, weight):
    expected = profile_of_trace(trace, weight)
    if not expected:
        with pytest.raises(ValueError, match="no profile"):
            trace.profile(weight)
        return
    profile = trace.profile(weight)
    assert as_dict(profile) == {size: float(total) for size, total in expected.items()}
    assert profile.metadata["weight"] == weight


@given(traces())
def test_profile_is_that_of_the_twin(trace):
    for weight in WEIGHTS:
        check(trace, weight)


@given(traces(sizes=(0, 5, 2**30, 2**48), max_events=60))
def test_profile_of_large_sizes_is_that_of_the_twin(trace):
    for weight in WEIGHTS:
        check(trace, weight)


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=30),
    st.sampled_from([(3, 4), (3, 2**40)]),
)
def test_byte_time_is_exact_past_64_bits(times, sizes):
    times = sorted(times)
    n = len(times)
    trace = px.Trace(
        op=[px.OP_ALLOC] * n,
        object=range(n),
        size_bytes=[sizes[i % 2] for i in range(n)],
        time_ns=times,
    )
    check(trace, "byte_time")


@pytest.mark.parametrize("size", [3, 2**40])
@pytest.mark.parametrize("bits", [0, 25, 26, 27, 31, 32, 33, 51, 52, 53, 63])
def test_byte_time_keeps_every_bit(bits, size):
    long = 2**bits
    trace = px.Trace(op=[0, 1], object=[0, 0], size_bytes=[size, 0], time_ns=[0, long])
    assert as_dict(trace.profile("byte_time")) == {size: long}


def test_peak_and_end_agree_with_the_summary():
    trace = px.synthesize(20_000, seed=3, arenas=4)
    summary = trace.summary()
    peak, count = trace.profile("peak"), trace.profile("count")
    assert peak.total_bytes == summary["peak_live_bytes"]
    assert peak.total_count == summary["peak_live_objects"]
    assert count.total_bytes == summary["allocated_bytes"]
    assert count.total_count == summary["allocs"] + summary["reallocs"]
    assert len(count) == summary["distinct_sizes"]
    for weight in WEIGHTS:
        if weight != "end" or summary["live_objects_end"]:
            check(trace, weight)


def test_destroys_end_what_lives_in_their_arena():
    a, f, r, d = px.OP_ALLOC, px.OP_FREE, px.OP_REALLOC, px.OP_DESTROY
    trace = px.Trace(
        op=[a, a, a, d, a, r, f, d, d],
        object=[0, 1, 2, -1, 3, 2, 3, -1, -1],
        size_bytes=[10, 20, 30, 0, 40, 50, 0, 0, 0],
        arena=[0, 1, 1, 0, 0, 1, 0, 2, 0],
    )
    assert as_dict(trace.profile("byte_time")) == {10: 3, 20: 8, 30: 3, 40: 2, 50: 4}
    assert as_dict(trace.profile("end")) == {20: 1, 50: 1}


def test_what_weighs_nothing_is_counted():
    trace = px.Trace(
        op=[0, 0, 1, 0], object=[0, 1, 1, 2], size_bytes=[1, 2, 0, 3], time_ns=[5, 7, 7, 9]
    )
    profile = trace.profile("byte_time")
    assert as_dict(profile) == {1: 4}
    assert profile.metadata["sizes_without_time"] == 2
    assert profile.metadata["time"] == "ns"


def test_refuses_where_there_is_nothing():
    empty = px.Trace(op=[], object=[], size_bytes=[])
    for weight in WEIGHTS:
        with pytest.raises(ValueError, match="no profile"):
            empty.profile(weight)
    freed = px.Trace(op=[0, 1], object=[0, 0], size_bytes=[8, 0])
    with pytest.raises(ValueError, match="nothing is live at the end"):
        freed.profile("end")
    with pytest.raises(ValueError, match="allowed are 'count'"):
        freed.profile("bytes")
    with pytest.raises(ValueError, match="outside 0 to 2"):
        px.Trace(op=[0], object=[0], size_bytes=[2**50]).profile()


@given(traces(min_events=1), st.sampled_from([0, 4]))
def test_the_sparse_way_counts_the_same(trace, most):
    dense = _traceprofile._MOST_DENSE
    _traceprofile._MOST_DENSE = most
    try:
        for weight in ("count", "byte_time"):
            check(trace, weight)
    finally:
        _traceprofile._MOST_DENSE = dense


def test_real_trace(shared_data):
    trace = px.load(shared_data / "traces" / "aosp" / "surfaceflinger.zip")
    summary = trace.summary()
    count = trace.profile()
    assert (count.total_bytes, len(count)) == (summary["allocated_bytes"], 550)
    peak, end = trace.profile("peak"), trace.profile("end")
    assert (peak.total_bytes, peak.total_count) == (2_063_697, summary["peak_live_objects"])
    assert (end.total_bytes, end.total_count) == (
        summary["live_bytes_end"],
        summary["live_objects_end"],
    )
    # The byte-time is the area under the live bytes, made here from the steps of its curve.
    steps = np.zeros(len(trace), np.int64)
    sizes = np.zeros(trace.n_objects, np.int64)
    for event, (op, thing, size) in enumerate(
        zip(trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True)
    ):
        new = 0 if op == px.OP_FREE else size
        steps[event] = new - sizes[thing]
        sizes[thing] = new
    area = int(np.cumsum(steps).sum())
    by_time = trace.profile("byte_time")
    summed = sum(
        Fraction(c) * s
        for s, c in zip(by_time.sizes.tolist(), by_time.counts.tolist(), strict=True)
    )
    assert math.isclose(summed, area, rel_tol=1e-14)


def test_aligned_requests_are_counted():
    trace = px.Trace(
        op=[0, 0, 0, 2, 1],
        object=[0, 1, 2, 0, 1],
        size_bytes=[48, 8, 100, 64, 0],
        align_log2=[4, 5, 12, 6, 9],
    )
    for weight in ("count", "peak", "end", "byte_time"):
        profile = trace.profile(weight)
        assert profile.metadata["aligned_requests"] == 3  # the free asks for nothing
        assert 8 in profile.sizes or weight == "end"
    plain = px.Trace(op=[0], object=[0], size_bytes=[8])
    assert "aligned_requests" not in plain.profile().metadata


def test_a_profile_and_a_fit_check_alike():
    wrong = [([], []), ([16], [0]), ([16], [math.nan]), ([-1], [1]), ([16], [1, 2]), ([1.5], [1])]
    for sizes, counts in [*wrong, ([2**70], [1]), ([16], ["many"]), ([True], [1]), ([[1]], [[1]])]:
        told = []
        for make in (px.Profile, lambda *pair: px.fit(pair, 1)):
            with pytest.raises((ValueError, TypeError)) as caught:
                make(sizes, counts)
            told.append((caught.type, str(caught.value)))
        assert told[0] == told[1]
    given = np.array([16, 32], np.uint64), np.array([1.0, 2.0])
    made = px.Profile(*given)
    assert not any(
        np.shares_memory(a, b) for a, b in zip(given, (made.sizes, made.counts), strict=True)
    )
    pair = [px.Profile([16], [1]), px.Profile([32], [1])]
    for weights in ("size", [1], [1, 0], [1, math.nan]):
        for combine in (px.Profile.combine, lambda both, weights: px.fit(both, 1, weights=weights)):
            with pytest.raises(ValueError, match="weights"):
                combine(pair, weights)

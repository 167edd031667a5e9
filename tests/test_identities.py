"""Golden numbers of Mozilla bug 1375331, and the identities that any replay of it must obey."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _core
from pyallocx.reference import arena as reference
from pyallocx.testing import traces

# Comment 2 of the bug: transitions to empty by malloc size of the buffer.
SEED = {
    "slashdot": {16: 503, 32: 427, 64: 341, 128: 122, 256: 397, 512: 153, 1024: 24, 2048: 81},
    "cnn": {16: 319, 32: 574, 64: 178, 128: 86, 256: 205, 512: 99, 1024: 155, 2048: 9, 4096: 3},
    "youtube": {
        16: 153, 32: 108, 64: 29, 128: 164, 256: 48, 512: 263, 1024: 1, 2048: 17, 4096: 2,
        8192: 2, 16384: 1, 32768: 2,
    },
    "wikipedia": {16: 257, 32: 235, 64: 181, 128: 141, 256: 273, 512: 4},
}  # fmt: skip
CUTS = [0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
TAILS = {
    "slashdot": [2048, 1545, 1118, 777, 655, 258, 105, 81, 0, 0, 0, 0],
    "cnn": [1628, 1309, 735, 557, 471, 266, 167, 12, 3, 0, 0, 0],
    "youtube": [790, 637, 529, 500, 336, 288, 25, 24, 7, 5, 3, 2],
    "wikipedia": [1091, 834, 599, 418, 277, 4, 0, 0, 0, 0, 0, 0],
}
FREED_AFTER_THE_FIX = {"slashdot": 0, "cnn": 3, "youtube": 7, "wikipedia": 0}
SUM_OF_LOWEST_PEAKS = {"slashdot": 26849, "cnn": 21155, "youtube": 19877, "wikipedia": 7075}


def trace_of_peaks(peaks, lists=1):
    """A trace whose list number i % lists goes through one episode with peak peaks[i]."""
    op, thing, size = [], [], []
    objects = 0
    held = {k: [] for k in range(lists)}
    for i, peak in enumerate(peaks):
        key = i % lists
        for _ in range(peak - len(held[key])):
            op.append(0)
            thing.append(objects)
            size.append(8 * (key + 1))
            held[key].append(objects)
            objects += 1
        for _ in range(peak):
            op.append(1)
            thing.append(held[key].pop())
            size.append(0)
        for _ in range(peak):
            op.append(0)
            thing.append(objects)
            size.append(8 * (key + 1))
            held[key].append(objects)
            objects += 1
    return px.Trace(
        op=np.array(op, np.uint8),
        object=np.array(thing, np.uint32),
        size_bytes=np.array(size, np.uint64),
    )


@pytest.mark.parametrize("site", SEED)
def test_seed_histograms(site):
    """Episodes with just the peaks the histogram needs, spread over lists, replayed for real."""
    lowest = {b: (b - 8) // 16 + 1 for b in SEED[site]}
    peaks = [lowest[b] for b, count in SEED[site].items() for _ in range(count)]
    assert sum(peaks) == SUM_OF_LOWEST_PEAKS[site]
    res = px.sweep(px.Arena, trace_of_peaks(peaks, 60), retain_bytes=CUTS)
    assert res["list_frees"].tolist() == TAILS[site]
    assert res["histogram_peak"][0] == SEED[site]
    assert res["histogram_buffer"][0] == SEED[site]
    (at,) = np.flatnonzero(res["retain_bytes"] == 2048)
    assert res["list_frees"][at] == FREED_AFTER_THE_FIX[site]
    # I6: the sum of the peaks is a lower bound of the pops.
    assert res["pops"][0] >= SUM_OF_LOWEST_PEAKS[site]


def test_ladders():
    wide = dict(_core.ladder())
    assert list(wide.items())[:12] == [(16 << k, (2 << k) - 1) for k in range(12)]
    assert list(wide)[19:26] == [m << 20 for m in (8, 9, 11, 13, 15, 17, 20)]
    narrow = _core.ladder(8, 4)
    assert narrow[:9] == [
        (12, 1), (16, 2), (32, 6), (64, 14), (128, 30), (256, 62), (512, 126), (1024, 254),
        (2048, 510),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("header", "width"), list(itertools.product((0, 4, 8, 12, 24, 64), (4, 8)))
)
def test_ladder_agrees_with_reference(header, width):
    assert _core.ladder(header, width) == list(reference.ladder(header, width))


def test_a_2048_byte_buffer_is_released_on_32_bit_only():
    trace = trace_of_peaks([255])
    cut = {"policy": "capacity_cut", "retain_capacity": 500}
    assert px.replay_arena(trace, **cut).row["list_frees"] == 0
    narrow = px.replay_arena(trace, **cut, pointer_bytes=4, alignment_bytes=4).row
    assert narrow["histogram_buffer"] == {2048: 1}
    assert narrow["list_frees"] == 1


@pytest.mark.parametrize("capacity", [254, 255, 300, 500, 510, 511])
def test_any_capacity_from_255_to_510_is_the_same_policy(capacity):
    trace = trace_of_peaks([1, 254, 255, 256, 511, 512, 3])
    by_capacity = px.replay_arena(trace, policy="capacity_cut", retain_capacity=capacity).row
    by_bytes = px.replay_arena(trace, retain_bytes=2048).row
    same = by_capacity["list_frees"] == by_bytes["list_frees"]
    assert same == (255 <= capacity <= 510)


cuts = st.lists(st.integers(0, 600) | st.just(math.inf), min_size=1, max_size=6)
few_sizes = traces(max_events=300, sizes=(8, 16, 24))


@settings(max_examples=settings().max_examples * 2)
@given(few_sizes, cuts)
def test_identities(trace, retain_bytes):
    res = px.sweep(px.Arena, trace, progress=False, retain_bytes=[0, *retain_bytes])
    before, *rows = res.rows()
    ladder = _core.ladder()
    now_non_empty = sum(1 for x in px.replay_arena(trace).free_lists if x["length"])
    nothing_died = not np.any(trace.op == px.OP_DESTROY)
    for row in rows:
        # I1: what is handed out does not depend on what is kept.
        for name in ("transitions", "pops", "bumps", "histogram_peak", "chunk_bytes_end"):
            assert row[name] == before[name]
        # I2: frees are the episodes whose peak needs more than the cut.
        released = sum(n for b, n in before["histogram_peak"].items() if b > row["retain_bytes"])
        assert row["list_frees"] == released
        # I4: above the cut the two histograms agree, below it buffers are never smaller.
        for size, _ in ladder:
            above = sum(n for b, n in row["histogram_buffer"].items() if b >= size)
            peaks = sum(n for b, n in row["histogram_peak"].items() if b >= size)
            assert above == peaks if size > row["retain_bytes"] else above >= peaks
        assert row["list_mallocs"] <= before["list_mallocs"]
    if nothing_died:
        # I3: before the fix a list holds a buffer exactly while it is not empty, ...
        assert before["list_mallocs"] - before["list_frees"] == now_non_empty
        # ... of the size its peak needs.
        assert before["histogram_buffer"] == before["histogram_peak"]
    # I6
    peaks_sum = sum(x["peaks_sum"] for x in px.replay_arena(trace).free_lists)
    assert peaks_sum <= before["pops"]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 4), cuts)
def test_mallocs_are_first_uses_and_refills(peaks, lists, retain_bytes):
    """I5, and the reallocs of I3: log2 of the rungs climbed."""
    trace = trace_of_peaks(peaks, lists)
    used = len({i % lists for i in range(len(peaks))})
    for row in px.sweep(px.Arena, trace, progress=False, retain_bytes=[0, *retain_bytes]):
        last = {i % lists: peak for i, peak in enumerate(peaks)}
        never_refilled = sum(
            8 + 8 * p > 0 and _rung(p) > row["retain_bytes"] for p in last.values()
        )
        assert row["list_mallocs"] == used + row["list_frees"] - never_refilled
        if row["retain_bytes"] == 0:
            climbs = sum(int(math.log2(_rung(p) // 16)) for p in peaks)
            assert row["list_reallocs"] == climbs


def _rung(entries):
    return next(size for size, room in _core.ladder() if room >= entries)


def test_requests_that_bypass_are_counted_one_by_one():
    trace = px.Trace([0, 2, 2, 2, 1], [0] * 5, [9000, 9100, 16, 9100, 0])
    assert px.replay_arena(trace).row["bypassed"] == 3
    assert px.sweep(px.Arena, trace, retain_bytes=0)["bypassed"].tolist() == [3]
    assert reference.replay(trace)["bypassed"] == 3


def test_ten_thousand_thresholds_cost_what_the_ladder_has_rungs():
    trace = px.synthesize(5000, seed=3)
    many = px.sweep(px.Arena, trace, retain_bytes=[*range(10_000), math.inf], progress=False)
    assert len(many) == 10_001
    few = px.sweep(px.Arena, trace, retain_bytes=[0, 15, 16, 17, 2047, 2048, 9999], progress=False)
    for name in few.columns:
        if name != "overhead_bytes_mean_ns":  # NaN: a synthetic trace has no times
            at = few["retain_bytes"].astype(int)
            assert list(many[name][at]) == list(few[name]), name

"""The best size classes: held to brute force, to the twin, and to figures measured elsewhere."""

import _thread
import dataclasses
import itertools
import json
import math
import pickle
import re
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _core
from pyallocx.reference import sizefit as reference

SOLVERS = ("auto", "quadratic", "divide", "price")

# Known answers


@pytest.mark.parametrize("header", [0, 16])
def test_greedy_can_be_arbitrarily_bad(header):
    options = {"header_bytes": header, "largest_bytes": 65552}
    profile = {80: 1000, 96: 2, 128: 2}
    for method in SOLVERS:
        best = px.fit(profile, 3, method=method, **options)
        assert (best.wastage_bytes, best.gap) == (64, 0)
        assert best.classes.tolist() == [80 + header, 128 + header, 65552]
    greedy = px.fit(profile, 3, method="greedy", **options)
    assert (greedy.wastage_bytes, greedy.lower_bound_bytes, greedy.gap) == (16000, 64, 15936)


def test_edges_of_a_class():
    """A size that is a class fits it; a byte more does not."""
    for classes, wasted in (([32, 64], 0), ([48, 64], 160)):
        assert px.wastage(classes, {32: 10}).wastage_bytes == wasted
    assert px.wastage([32, 64], {33: 10}).wastage_bytes == 310
    assert px.wastage([32, 64], {16: 10}, header_bytes=16).wastage_bytes == 0
    assert px.wastage([32, 64], {17: 10}, header_bytes=16).wastage_bytes == 310
    over = px.wastage([32, 64], {64: 3, 65: 10, 100: 1})
    assert (over.wastage_bytes, over.excluded_count, over.excluded_bytes) == (0, 11, 750)


def test_cap_is_pages():
    cost = px.wastage([100_000], {1: 1, 91_807: 1, 91_809: 1, 91_808: 1})
    assert cost.wastage_bytes == 8192 + 8192 + 8191 + 8192
    assert px.wastage([100_000], {1: 1}, page_bytes=1024, page_cap=2.5).wastage_bytes == 2560
    assert px.wastage([100_000], {1: 1}, page_cap=None).wastage_bytes == 99_999


def test_one_class():
    for method in SOLVERS:
        best = px.fit({5: 2, 70: 1}, 1, method=method)
        assert (best.classes.tolist(), best.wastage_bytes, best.gap) == ([80], 160, 0)


def test_more_classes_than_candidates():
    """As many as are of use, and the result says so."""
    for method in (*SOLVERS, "greedy"):
        best = px.fit({5: 2, 70: 1, 71: 3}, 200, method=method)
        assert best.classes.tolist() == [16, 80]
        assert best.spare == 198
        assert best.wastage_bytes == best.floor_bytes == 2 * 11 + 10 + 27
        assert "198 more classes would save nothing" in repr(best)
        assert best.best_addition() is None
    assert len(best.curve(1000)) == 2


def test_sizes_above_the_largest_are_counted():
    best = px.fit({16: 4, 5000: 3, 6000: 2}, 1, largest_bytes=1024)
    assert (best.excluded_count, best.excluded_bytes) == (5, 27000)
    assert "5 requests of 26.4 KiB are larger and have no class" in repr(best)


def test_size_zero():
    best = px.fit({0: 5}, 3, header_bytes=16)
    assert best.classes.tolist() == [32]
    assert px.fit({0: 5}, 3).classes.tolist() == [16]


def test_prefix_of_a_table_map():
    best = px.fit({40: 3, 999: 1}, 6, header_bytes=16, bits=7, prefix="table")
    assert best.classes.tolist() == [32, 48, 64, 80, 1024]
    assert best.constraints["forced"] == [32, 48, 64, 80]


# Against the twin and against everything


@st.composite
def problems(draw, *, whole=True, most=7, tails=False):
    """Draw a profile and constraints under which a table exists."""
    align = draw(st.sampled_from((1, 4, 8, 16)))
    header = draw(st.sampled_from((0, 0, align, 2 * align, 3)))
    bits = draw(st.sampled_from((None, None, 1, 2, 3)))
    unit = align if draw(st.booleans()) else 1
    sizes = st.integers(0, 24 * align // unit).map(lambda n: n * unit)
    counts = st.integers(1, 9) if whole else st.floats(0.01, 100)
    profile = draw(st.dictionaries(sizes, counts, min_size=1, max_size=12))
    need = max(profile) + header
    classes = reference.grid(64 * align + 8 * need + 64, align=align, header=header, bits=bits)
    above = [c for c in classes if c >= need]
    assume(above)
    largest = draw(st.sampled_from((above[0], above[0], above[-1], None)))
    candidates = [c for c in classes if c <= (largest or above[0])]
    if draw(st.integers(0, 3)) == 0:
        lower = [c for c in candidates if c >= min(profile) + header]
        assume(lower)
        largest = draw(st.sampled_from(lower))
        candidates = [c for c in candidates if c <= largest]
    forced = draw(st.lists(st.sampled_from(candidates), max_size=2, unique=True))
    least = len({*forced, candidates[-1]})
    rule = None
    if tails:
        page = draw(st.sampled_from((align, 2 * align, 5 * align, 64)))
        rule = px.TailRule(
            draw(st.sampled_from((0, 0.02, 0.125, 0.5))),
            page,
            draw(st.integers(1, 8)),
            draw(st.sampled_from((0, 0, 300))),
            draw(st.sampled_from(("cheapest", "largest"))),
        )
    options = {
        "bits": bits,
        "header_bytes": header,
        "align_bytes": align,
        "largest_bytes": largest,
        "forced": forced,
        "page_bytes": align,
        "page_cap": draw(st.sampled_from((None, 0.5 if align > 1 else 1, 1, 2, 7))),
        "tail_rule": rule,
    }
    k = draw(st.integers(least, max(least, most)))
    return profile, k, options, candidates


def twin_options(options):
    """Return the constraints as the twin takes them."""
    cap, page, rule = options["page_cap"], options["page_bytes"], options["tail_rule"]
    twin = {"header": options["header_bytes"], "cap": None if cap is None else int(cap * page)}
    if rule is not None:
        fraction = Fraction(rule.max_tail).limit_denominator(1_000_000)
        twin["cost"] = lambda size: reference.span(
            size,
            page=rule.page_bytes,
            max_tail=fraction,
            max_pages=rule.max_pages,
            move_bytes=rule.move_bytes,
            fallback=rule.fallback,
        )
    return twin


def fractions(profile):
    return {size: Fraction(count) for size, count in profile.items()}


def thinned(candidates, profile, header):
    """Return the candidates that a size is rounded up to, for the twin, which tries all edges."""
    used = {next((c for c in candidates if c >= s + header), candidates[-1]) for s in profile}
    return sorted(used | {candidates[-1]})


@given(problems())
def test_whole_counts(problem):
    """Any profile, any constraints, any solver: to the byte, with proof."""
    profile, k, options, candidates = problem
    must = set(options["forced"])
    useful = sorted({*thinned(candidates, profile, options["header_bytes"]), *must})
    value, _ = reference.best_classes(
        useful, fractions(profile), k, forced=must, **twin_options(options)
    )
    for method in SOLVERS:
        best = px.fit(profile, k, method=method, **options)
        assert best.exact
        assert best.monge
        assert (best.wastage_bytes, best.gap) == (value, 0), method
        assert isinstance(best.wastage_bytes, int)
        assert len(best.classes) == min(k, len(useful))
        assert must | {candidates[-1]} <= set(best.classes.tolist()) <= set(candidates)
        again = reference.wastage(
            best.classes.tolist(), fractions(profile), **twin_options(options)
        )
        assert best.table.wastage_bytes == again == value
        served = sum(n for s, n in profile.items() if s + options["header_bytes"] <= candidates[-1])
        assert best.table.requests + best.excluded_count == sum(profile.values())
        assert best.table.requests == served
    greedy = px.fit(profile, k, method="greedy", **options)
    assert greedy.lower_bound_bytes == value <= greedy.wastage_bytes
    assert greedy.classes.tolist() == greedy_twin(useful, profile, k, must, options)
    best.check()


def greedy_twin(candidates, profile, k, must, options):
    """Return what adding the best candidate at a time gives; the smallest of equal ones."""
    twin = twin_options(options)
    table = {*must, candidates[-1]}
    value = reference.wastage(table, fractions(profile), **twin)
    while len(table) < k:
        others = [c for c in candidates if c not in table]
        costs = [reference.wastage({*table, c}, fractions(profile), **twin) for c in others]
        if not costs or min(costs) >= value:
            break
        value = min(costs)
        table.add(others[costs.index(value)])
    return sorted(table)


@given(problems(most=4))
def test_all_subsets(problem):
    """The definition itself, with every class of the grid, of use or not."""
    profile, k, options, candidates = problem
    assume(math.comb(len(candidates), min(k, len(candidates) // 2)) < 3000)
    value = reference.best_of_all_subsets(
        candidates, fractions(profile), k, forced=options["forced"], **twin_options(options)
    )
    assert px.fit(profile, k, **options).wastage_bytes == value


@given(problems(most=4, tails=True))
def test_tail_rules_all_subsets(problem):
    """Spans: the classes that a larger one dominates are left out, and nothing is lost."""
    profile, k, options, candidates = problem
    assume(math.comb(len(candidates), min(k, len(candidates) // 2)) < 3000)
    value = reference.best_of_all_subsets(
        candidates, fractions(profile), k, forced=options["forced"], **twin_options(options)
    )
    for method in SOLVERS:
        best = px.fit(profile, k, method=method, **options)
        assert best.wastage_bytes == pytest.approx(float(value), rel=1e-12, abs=1e-9), method
        assert best.table.wastage_bytes == pytest.approx(float(value), rel=1e-12, abs=1e-9)
        assert best.gap == pytest.approx(0, abs=1e-9 * (1 + float(value)))
        if not best.monge:
            assert best.method == "quadratic"


@given(problems(whole=False))
def test_weights_that_are_no_integers(problem):
    """The optimum up to rounding."""
    profile, k, options, candidates = problem
    useful = sorted({*thinned(candidates, profile, options["header_bytes"]), *options["forced"]})
    value, _ = reference.best_classes(
        useful, fractions(profile), k, forced=options["forced"], **twin_options(options)
    )
    scale = 1e-9 * (1 + sum(profile.values()) * candidates[-1])
    for method in SOLVERS:
        best = px.fit(profile, k, method=method, **options)
        assert best.wastage_bytes == pytest.approx(float(value), abs=scale), method
        assert best.lower_bound_bytes == pytest.approx(float(value), abs=scale), method
        assert best.gap >= 0


@given(problems(), st.integers(1, 30))
def test_curve(problem, up_to):
    """Each value is what a fit of so many classes finds; it begins with what must be there."""
    profile, k, options, candidates = problem
    least = len({*options["forced"], candidates[-1]})
    best = px.fit(profile, k, **options)
    if up_to < least:
        with pytest.raises(ValueError, match="must be there"):
            best.curve(up_to)
        return
    curve = best.curve(up_to)
    assert curve["classes"][0] == least
    for row in curve:
        again = px.fit(profile, row["classes"], method="quadratic", **options)
        assert row["wastage_bytes"] == again.wastage_bytes
        assert len(again.classes) == row["classes"]
    fully = px.fit(profile, max(up_to, least), **options)
    assert curve["classes"][-1] == len(fully.classes)


@given(problems(tails=True))
def test_each_class_counts(problem):
    """Marginal values and the best addition are what evaluating the changed table gives."""
    profile, k, options, _ = problem
    best = px.fit(profile, k, **options)
    twin, table = twin_options(options), best.classes.tolist()
    value = reference.wastage(table, fractions(profile), **twin)
    losses = best.marginal()
    assert losses[-1] == math.inf
    for i, loss in enumerate(losses[:-1]):
        without = reference.wastage([*table[:i], *table[i + 1 :]], fractions(profile), **twin)
        assert loss == pytest.approx(float(without - value), abs=1e-9)
    added = best.best_addition()
    if added is not None:
        more = reference.wastage([*table, added.class_bytes], fractions(profile), **twin)
        assert added.saved_bytes == pytest.approx(float(value - more), abs=1e-9)
    if options["tail_rule"] is None:
        rising = reference.grid(
            table[-1],
            align=options["align_bytes"],
            header=options["header_bytes"],
            bits=options["bits"],
        )
        costs = [reference.wastage([*table, c], fractions(profile), **twin) for c in rising]
        assert (added.saved_bytes if added else 0) == value - min(costs)


@given(
    st.dictionaries(st.integers(0, 300), st.integers(1, 50), min_size=1, max_size=20),
    st.lists(st.integers(1, 320), min_size=1, max_size=8, unique=True).map(sorted),
    st.sampled_from((0, 3, 16)),
    st.sampled_from((1, 8, 16)),
    st.sampled_from((None, 1, 2)),
)
@example({0: 1}, [1], 0, 1, None)
def test_evaluating_any_table(profile, classes, header, align, cap):
    """Parts add up, size by size."""
    assume(classes[-1] > header)
    options = {"header_bytes": header, "align_bytes": align, "page_bytes": 16, "page_cap": cap}
    cost = px.wastage(classes, profile, **options)
    twin_cap = None if cap is None else 16 * cap
    value = reference.wastage(classes, fractions(profile), header=header, cap=twin_cap)
    assert cost.wastage_bytes == sum(cost.parts.values()) == value
    assert cost.wastage_bytes == sum(row.wastage_bytes for row in cost.rows)
    assert cost.requests + cost.excluded_count == sum(profile.values())
    assert cost.requested_bytes + cost.excluded_bytes == sum(s * n for s, n in profile.items())
    rounded = sum(
        n
        * (
            min(-(-(s + header) // align) * align, *(c for c in (*classes, 999) if c >= s + header))
            - s
            - header
        )
        for s, n in profile.items()
        if s + header <= classes[-1]
    )
    assert cost.parts["alignment_bytes"] == rounded
    assert cost.classes.tolist() == classes


# Tail rules


def test_gperftools_spans():
    """Spans of a few classes; its rule has no class that a larger one dominates."""
    rule = px.TailRule.gperftools()
    assert [rule.span_pages(c) for c in (8, 1024, 1152, 8192, 9472, 262144)] == [1, 1, 2, 2, 5, 32]
    effective = [rule.effective_bytes(c) for c in range(16, 32769, 16)]
    assert all(a <= b for a, b in itertools.pairwise(effective))


def test_dominated_candidates_are_left_out():
    """A rule that breaks the quadrangle condition, and holds it once they are gone."""
    rule = px.TailRule(0.02, 4096, 16, fallback="largest")
    effective = [rule.effective_bytes(c) for c in range(16, 32769, 16)]
    assert any(a > b for a, b in itertools.pairwise(effective))
    rng = np.random.default_rng(5)
    profile = {
        int(s): int(n)
        for s, n in zip(rng.integers(1, 32768, 300), rng.integers(1, 99, 300), strict=True)
    }
    best = px.fit(profile, 12, tail_rule=rule)
    assert best.monge
    best.check()


def test_forced_dominated_class_falls_back():
    """A class that must be there and costs more than a larger one: only the quadratic solver."""
    rule = px.TailRule(0, 64, 3, fallback="largest")
    costs = {c: rule.effective_bytes(c) for c in (40, 48, 56, 64)}
    assert costs == {40: 48, 48: 48, 56: 64, 64: 64}
    options = {"align_bytes": 8, "tail_rule": rule, "page_cap": None}
    profile = {s: 1 + s % 5 for s in range(8, 200, 8)}
    fallen = 0
    for forced in range(8, 192, 8):
        twin = {
            "cost": lambda size: reference.span(
                size, page=64, max_tail=Fraction(0), max_pages=3, fallback="largest"
            )
        }
        value = reference.best_of_all_subsets(
            reference.grid(192, align=8), fractions(profile), 4, forced=[forced], **twin
        )
        found = px.fit(profile, 4, forced=[forced], **options)
        assert found.wastage_bytes == pytest.approx(float(value))
        if not found.monge:
            fallen += 1
            assert (found.method, found.gap) == ("quadratic", 0)
            assert "breaks the quadrangle condition" in repr(found)
            greedy = px.fit(profile, 4, forced=[forced], method="greedy", **options)
            assert greedy.lower_bound_bytes == found.wastage_bytes <= greedy.wastage_bytes
            curve = found.curve(6)
            assert curve["wastage_bytes"][4 - curve["classes"][0]] >= found.wastage_bytes
    assert fallen


# Input


def test_profiles_in_any_form():
    class Named:
        sizes = np.array([16, 80])
        counts = np.array([3, 2])
        name = "named"

    class Recorded:
        def profile(self):
            return Named()

    wanted = px.fit({16: 3, 80: 2}, 1).wastage_bytes
    for profile in (
        px.Profile([16, 80], [3, 2]),
        [px.Profile([16], [3]), px.Profile([80], [2])],
        Named(),
        Recorded(),
        ([80, 16], [2, 3]),
        (np.array([16, 80, 16], np.uint32), np.array([1.0, 2.0, 2.0])),
        [{16: 3}, {80: 2}],
        [({16: 1, 80: 1}), Named(), {16: 2, 80: 1}][1:2],
        ({16: 3}, {80: 2}),
    ):
        assert px.fit(profile, 1).wastage_bytes == wanted


def test_weights_of_several_profiles():
    first, second = {16: 90, 32: 10}, {32: 1, 64: 9}

    def rows(weights):
        table = px.fit([first, second], 9, weights=weights).table
        return [row.requests for row in table.rows]

    assert rows("count") == [90, 11, 9]
    assert rows((1, 10)) == [90, 20, 90]
    assert rows("equal") == pytest.approx([49.5, 11, 49.5])
    by_bytes = px.fit([first, second], 9, weights="bytes").table.rows
    assert sum(r.requests * r.class_bytes for r in by_bytes) == pytest.approx(1760 + 608)
    for weights in ("weight", (1,), (1, 0), (1, math.nan)):
        with pytest.raises(ValueError, match="weights"):
            rows(weights)
    with pytest.raises(ValueError, match="no bytes"):
        px.fit([first, {0: 2}], weights="bytes")
    # One program alone is weighed as well, though to no effect.
    for alone in (first, [first]):
        for weights in ("x", [math.nan], [0], [1, 2]):
            with pytest.raises(ValueError, match="weights"):
                px.fit(alone, 2, weights=weights)
        assert len({px.fit(alone, 2, weights=w).wastage_bytes for w in ("bytes", "count")}) == 1
    assert px.fit({0: 2}, 2, weights="bytes").wastage_bytes == 32
    both = [px.Profile(list(p), list(p.values())) for p in (first, second)]
    for weights in ("count", "equal", "bytes", (1, 10)):
        joined = px.fit(px.Profile.combine(both, weights), 9).table.rows
        assert rows(weights) == pytest.approx([row.requests for row in joined])


def test_a_trace_is_a_profile_of_its_allocations():
    trace = px.synthesize(2000, seed=1)
    assert px.fit(trace, 8).wastage_bytes == px.fit(trace.profile(), 8).wastage_bytes


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({}, "the profile is empty"),
        ([], "no profiles"),
        ({16: 0}, "the count of size 16 is 0"),
        ({16: 1, 32: -2}, "the count of size 32 is -2"),
        ({16: math.nan}, "the count of size 16 is nan"),
        ({16: math.inf}, "the count of size 16 is inf"),
        ({-1: 1}, "size -1 is outside"),
        ({2**48 + 1: 1}, "is outside 0 to"),
        (([1, 2], [1]), "shape"),
    ],
)
def test_bad_profiles(profile, message):
    with pytest.raises(ValueError, match=message):
        px.fit(profile)


@pytest.mark.parametrize("profile", [7, "text", ([1.5], [1]), ({16: "many"})])
def test_things_that_are_no_profiles(profile):
    with pytest.raises(TypeError):
        px.fit(profile)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, "classes must be between 1"),
        ({"bits": 0}, "bits must be between 1"),
        ({"align_bytes": 24}, "no power of two"),
        ({"align_bytes": 0}, "align_bytes must be between 1"),
        ({"header_bytes": -1}, "header_bytes must be between 0"),
        ({"header_bytes": 64, "largest_bytes": 64}, "no more than header_bytes"),
        ({"header_bytes": 96, "largest_bytes": 64}, "no more than header_bytes"),
        ({"largest_bytes": 1000}, "no multiple of align_bytes"),
        ({"largest_bytes": 16 * 21, "bits": 4}, "5 significant bits above header_bytes"),
        ({"largest_bytes": 32}, "smallest request needs 40"),
        ({"forced": [40]}, "forced class is 40, which is no multiple"),
        ({"forced": [16 * 7], "bits": 2}, "forced class is 112, which has 3 significant bits"),
        ({"forced": [16], "header_bytes": 16}, "forced class is 16, which is no more than header"),
        ({"forced": [2048], "largest_bytes": 1024}, "forced class 2048 is above largest_bytes"),
        ({"classes": 2, "forced": [64, 128]}, "classes is 2, but 3 must be there"),
        ({"classes": 2, "prefix": 4}, "classes is 2, but"),
        ({"prefix": "table"}, "needs bits"),
        ({"prefix": "linear"}, "prefix is 'linear'"),
        ({"prefix": 3, "header_bytes": 8}, "class of the prefix is 24, which is no multiple"),
        ({"bits": 2, "header_bytes": 8}, "bits=2 leaves no class"),
        ({"page_cap": 0}, "page_cap"),
        ({"page_cap": math.nan}, "page_cap"),
        ({"page_bytes": 0}, "page_bytes"),
        ({"method": "best"}, "method is 'best'"),
    ],
)
def test_impossible_constraints(options, message):
    """The message names the one that makes it impossible."""
    with pytest.raises(ValueError, match=message):
        px.fit({40: 1, 500: 2}, **options)


def test_wrong_types():
    for options in ({"classes": 1.5}, {"forced": ["16"]}, {"tail_rule": "go"}, {"bits": "7"}):
        with pytest.raises(TypeError):
            px.fit({40: 1}, **options)
    for parameters in ({"max_tail": 2}, {"page_bytes": 0}, {"max_pages": 0}, {"move_bytes": -1}):
        with pytest.raises(ValueError):
            px.TailRule(**parameters)


def test_bad_tables():
    with pytest.raises(ValueError, match="empty"):
        px.wastage([], {1: 1})
    for classes in ([16.7, 32.2], np.array([16.0]), [True], ["16"]):
        with pytest.raises(TypeError, match="class 1 must be an integer"):
            px.wastage(classes, {1: 1})
    with pytest.raises(ValueError, match="class 2 is -1"):
        px.wastage([16, -1], {1: 1})
    with pytest.raises(ValueError, match="classes must rise, but 16 follows 32"):
        px.wastage([32, 16], {1: 1})
    with pytest.raises(ValueError, match="header_bytes is 32, which leaves nothing"):
        px.wastage([16, 32], {1: 1}, header_bytes=32)


# Results


def test_a_fit_is_a_value():
    best = px.fit({16: 3, 100: 2, 700: 1}, 2, tail_rule="gperftools")
    assert json.loads(json.dumps(best.constraints)) == best.constraints
    copy = pickle.loads(pickle.dumps(best))
    assert copy.classes.tolist() == best.classes.tolist()
    assert copy.curve(3)["wastage_bytes"].tolist() == best.curve(3)["wastage_bytes"].tolist()
    with pytest.raises(ValueError, match="read-only"):
        best.classes[0] = 1
    assert "no table of so many classes wastes less: the lower bound is the same (price)" in repr(
        px.fit({16: 3, 100: 2}, 1, method="price")
    )
    assert "<table>" in best._repr_html_()
    assert "<table>" in best.table._repr_html_()
    frame = best.table.to_pandas()
    assert frame["class_bytes"].tolist() == best.classes.tolist()
    assert (
        px.wastage(best, {16: 3}).rows
        == best.evaluate({16: 3}).rows[:0] + px.wastage(best.classes, {16: 3}, align_bytes=16).rows
    )


def test_a_curve_is_a_table_with_a_knee(tmp_path):
    curve = px.fit({size: 1000 // size for size in range(1, 900, 7)}, 8).curve(20)
    assert curve.grid_keys == ("classes",)
    assert 1 < curve.knee()["classes"] < 20
    assert "knee" in repr(curve)
    assert len(curve.to_pandas()) == 20
    curve.plot(path=tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").stat().st_size


def test_maps():
    class Map:
        classes = np.array([32, 48, 80], np.uint64)
        header_bytes = 16
        align_bytes = 16

    cost = px.wastage(Map(), {1: 2, 17: 1, 64: 1})
    assert cost.wastage_bytes == 2 * 15 + 15
    assert cost.parts["alignment_bytes"] == 45
    Map.classes = np.array([32, 50], np.uint64)
    with pytest.raises(ValueError, match="class 50 is not header_bytes"):
        px.wastage(Map(), {1: 2})
    assert px.wastage(Map(), {1: 2}, header_bytes=16, align_bytes=1).wastage_bytes == 30


@pytest.mark.parametrize("kind", ["flat", "search"])
def test_a_fit_becomes_a_map(kind):
    best = px.fit({size: 1 + size % 9 for size in range(1, 2000, 3)}, 12, header_bytes=16)
    sizes = best.to_map(kind)
    sizes.check()
    assert sizes.classes.tolist() == best.classes.tolist()
    assert px.wastage(sizes, best._profile).wastage_bytes == best.wastage_bytes
    waste = sizes.round(sizes.need(best._profile.sizes)) - best._profile.sizes - 16
    assert (np.minimum(waste, 8192) * best._profile.counts).sum() == best.wastage_bytes


def test_a_wrong_answer_is_noticed():
    best = px.fit({16: 3, 100: 2, 700: 1}, 2)
    best.check()
    with pytest.raises(px.CorruptionError, match="not"):
        dataclasses.replace(best, wastage_bytes=best.wastage_bytes - 1).check()
    worse = dataclasses.replace(
        best, classes=np.array([16, 704], np.uint64), wastage_bytes=2 * 604 + 4
    )
    if worse.table.wastage_bytes > best.wastage_bytes:
        with pytest.raises(px.CorruptionError):
            worse.check()


def core_of(profile, params=None, forced=(), **more):
    sizes = np.array(sorted(profile), np.uint64)
    counts = np.array([float(profile[s]) for s in sorted(profile)])
    return _core.SizeFit(sizes, counts, {"align_bytes": 16} | (params or {}), forced, **more)


@pytest.mark.parametrize("method", range(5))
def test_slices(method):
    """A search in the smallest slices finds the same, and can be left at any time."""
    profile = {int(s): 1 + s % 7 for s in range(1, 3000, 13)}
    whole, slices = core_of(profile), core_of(profile)
    whole.start(method, 20)
    assert whole.step(2**63) == 0
    slices.start(method, 20)
    steps = 1
    while slices.step(0):
        steps += 1
    assert steps >= 3
    assert whole.result() == slices.result()
    slices.start(method, 5)
    slices.step(0)
    with pytest.raises(RuntimeError, match="not finished"):
        slices.result()
    with pytest.raises(RuntimeError, match="not finished"):
        slices.curve()


def test_every_allocation_can_fail():
    profile = {int(s): 1 for s in range(1, 20_000, 16)}
    params = {"span_page_bytes": 4096, "span_max_pages": 2, "tail_num": 1, "tail_den": 8}
    for rules in ({}, params):
        failures = 0
        for n in itertools.count(1):
            try:
                search = core_of(profile, rules, fail_at=n)
                search.start(3, 20)
                while search.step(2**40):
                    pass
                break
            except MemoryError:
                failures += 1
        assert failures > 10
        assert len(search.result()["classes"]) == 20


def test_the_core_refuses_what_python_should_have():
    for params, message in (
        ({"align_bytes": 3}, "align_bytes"),
        ({"bits": 65}, "bits"),
        ({"largest_bytes": 1000}, "off the grid"),
        ({"largest_bytes": 32}, "no size fits"),
        ({"header_bytes": 2**60}, "header_bytes"),
        ({"cap_bytes": 2**60}, "cap_bytes"),
        ({"span_page_bytes": 4096}, "tail rule"),
    ):
        with pytest.raises(ValueError, match=message):
            core_of({100: 1}, params)
    with pytest.raises(ValueError, match="forced"):
        core_of({100: 1}, {}, [24])
    with pytest.raises(ValueError, match="rise"):
        core_of({100: 1}, {}, [32, 16])
    sizes, counts = np.array([2, 1], np.uint64), np.array([1.0, 1.0])
    with pytest.raises(ValueError, match="size is 1"):
        _core.SizeFit(sizes, counts, {}, [])
    with pytest.raises(ValueError, match="count"):
        _core.SizeFit(sizes[:1], np.array([math.nan]), {}, [])
    with pytest.raises(TypeError, match="float64"):
        _core.SizeFit(sizes, sizes, {}, [])
    with pytest.raises(ValueError, match="counts for"):
        _core.SizeFit(sizes, counts[:1], {}, [])
    search = core_of({100: 1})
    with pytest.raises(RuntimeError, match="not started"):
        search.step(1)
    with pytest.raises(ValueError, match="method"):
        search.start(5, 1)
    with pytest.raises(ValueError, match="classes"):
        search.start(0, 0)
    with pytest.raises(ValueError, match="classes"):
        core_of({100: 1}, {}, [16, 32]).start(0, 2)


def test_large_numbers():
    """Counts beyond 2**53 are rounded, and the result says so."""
    best = px.fit({16: 2**60, 100: 3, 2**40: 1}, 2)
    assert not best.exact
    assert best.gap >= 0
    assert "up to rounding" in repr(best)


def test_programs_have_the_names_of_their_profiles():
    programs = [px.Profile([16, 40], [1, 2], name="one"), px.Profile([24], [1], name="two")]
    result = px.cross_validate(programs, 2, draws=0, progress=False)
    assert [row.program for row in result.rows] == ["one", "two"]
    assert math.isnan(result.low_percent)


def test_cancelling_a_cross_validation():
    control = px.Control()
    control.cancel()
    with pytest.raises(px.SweepCancelled):
        px.cross_validate([{16: 1}, {32: 1}], control=control, progress=False)


def test_interrupting_a_long_search():
    """Ctrl-C ends a search that would take minutes."""
    profile = {size: 1 + size % 5 for size in range(1, 300_000, 3)}
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        px.fit(profile, 200, method="greedy", align_bytes=1)
    timer.join()


def test_cross_validation_is_seeded():
    programs = [{16 * s: s for s in range(i, 20 + i)} for i in range(1, 6)]
    first, again, other = (
        px.cross_validate(programs, 5, draws=20, seed=seed, progress=False) for seed in (3, 3, 4)
    )
    assert first.rows == again.rows != other.rows
    for row, program in zip(first.rows, programs, strict=True):
        others = [p for p in programs if p is not program]
        largest = int(first.pooled.classes[-1])
        table = px.fit(others, 5, weights="bytes", largest_bytes=largest)
        # Weights of those that are left are scaled alike, so the table is the same.
        assert row.held_out_percent == pytest.approx(table.evaluate(program).percent)
        assert 0 < row.draws < 20
    drawn = np.random.default_rng(3).integers(0, 5, (20, 5))
    assert [row.draws for row in first.rows] == [int((drawn != i).all(1).sum()) for i in range(5)]
    assert first.rows[0].program == "program 1"
    assert "<table>" in first._repr_html_()
    assert len(first.to_pandas()) == 5
    for bad in ([{16: 1}], {16: 1}):
        with pytest.raises(ValueError, match="at least two"):
            px.cross_validate(bad)
    with pytest.raises(ValueError, match="names"):
        px.cross_validate(programs, names=["one"])
    with pytest.raises(ValueError, match="confidence"):
        px.cross_validate(programs, confidence=1)


def test_the_document_names_what_there_is(repository):
    text = (repository / "docs" / "sizeclasses.md").read_text()
    text = text.partition("\n## The optimum\n")[2].partition("\n## ")[0]
    assert all(f"`{part}`" in text for part in px.wastage([16], {1: 1}).parts)
    for name in re.findall(r"`(\w+)(?:`, `\w+)?` \|", text):
        assert name in px.fit({1: 1}, 1).constraints | px.wastage([16], {1: 1}).parts
    for call in re.findall(r"^best\.(\w+)", text, re.MULTILINE):
        assert hasattr(px.Fit, call) or call in px.Fit.__dataclass_fields__

"""Steps by size, and lowest set bits that lie close together: against plain definitions."""

import ast
import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx.reference import sizefit as reference

SOLVERS = ("auto", "quadratic", "divide", "price")
TCMALLOC = [(1024, 8), (None, 128)]
GO = [(32, 8), (1024, 16), (None, 128)]


def rounded(candidates, profile, header):
    """Return the candidates that a size is rounded up to, and the largest."""
    return sorted(
        {next((c for c in candidates if c >= s + header), candidates[-1]) for s in profile}
        | {candidates[-1]}
    )


@st.composite
def grids(draw):
    """Draw a profile and a grid of up to four steps."""
    align = draw(st.sampled_from((1, 4)))
    ends = sorted(draw(st.sets(st.integers(1, 200), max_size=3)))
    steps = sorted(align << draw(st.integers(0, 4)) for _ in range(len(ends) + 1))
    grid = list(zip([*ends, None], steps, strict=True))
    header = draw(st.sampled_from((0, steps[-1], 3)))
    bits = draw(st.sampled_from((None, None, 2, 3)))
    if header == 3:
        bits = None
    profile = draw(st.dictionaries(st.integers(0, 300), st.integers(1, 9), min_size=1, max_size=10))
    return profile, {"align_bytes": align, "header_bytes": header, "bits": bits, "grid": grid}


@given(grids(), st.integers(1, 6), st.sampled_from((None, 1.5)))
def test_steps_by_size(problem, k, cap):
    profile, options = problem
    header = options["header_bytes"]
    candidates = reference.grid(
        2048, align=options["align_bytes"], header=header, bits=options["bits"],
        steps=options["grid"],
    )  # fmt: skip
    need = max(profile) + header
    candidates = [c for c in candidates if c < need] + [c for c in candidates if c >= need][:1]
    useful = rounded(candidates, profile, header)
    limit = None if cap is None else 24
    value, _ = reference.best_classes(
        useful, {s: Fraction(n) for s, n in profile.items()}, k, header=header, cap=limit
    )
    for method in SOLVERS:
        best = px.fit(profile, k, method=method, page_bytes=16, page_cap=cap, **options)
        assert (best.wastage_bytes, best.gap) == (value, 0)
        assert set(best.classes.tolist()) <= set(candidates)
        assert best.classes[-1] == candidates[-1]
    best.check()
    assert best.constraints["grid"] == [list(piece) for piece in options["grid"]]


@given(
    st.dictionaries(st.integers(0, 200), st.integers(1, 9), min_size=1, max_size=10),
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from((0, 4, 6)),
    st.sampled_from((None, 2, 3)),
    st.sampled_from((1, 2)),
    st.booleans(),
)
def test_lowest_bits_close_together(profile, k, span, header, bits, align, fixed):
    """Every lowest bit is tried, by brute force, and the best of them is found."""
    need = max(profile) + header
    largest = None
    if fixed:
        whole = reference.grid(1024, align=align, header=header, bits=bits)
        largest = next((c for c in whole if c >= need), None)
        assume(largest)
    values, floors, curves = [], [], []
    for base in range(align.bit_length() - 1, 12):
        candidates = reference.grid(
            4096, align=align, header=header, bits=bits, lowest=range(base, base + span + 1)
        )
        above = [c for c in candidates if c >= need]
        if not above or largest not in (None, *candidates):
            continue
        candidates = [c for c in candidates if c < need] + [largest or above[0]]
        candidates = sorted(c for c in set(candidates) if c <= (largest or above[0]))
        useful = rounded(candidates, profile, header)
        counts = {s: Fraction(n) for s, n in profile.items()}
        curves.append(
            [reference.best_classes(useful, counts, i, header=header)[0] for i in range(1, 8)]
        )
        values.append(curves[-1][k - 1])
        floors.append(reference.wastage(useful, counts, header=header))
    assume(values)
    options = {
        "align_bytes": align, "header_bytes": header, "bits": bits, "lsb_span": span,
        "largest_bytes": largest, "page_cap": None,
    }  # fmt: skip
    for method in SOLVERS:
        best = px.fit(profile, k, method=method, **options)
        assert (best.wastage_bytes, best.gap) == (min(values), 0)
        lowest = [(c & -c).bit_length() for c in best.classes.tolist()]
        assert max(lowest) - min(lowest) <= span
    best.check()
    assert best.floor_bytes == min(floors)
    curve = best.curve(7)["wastage_bytes"].tolist()
    wanted = [min(column) for column in zip(*curves, strict=True)]
    assert curve + curve[-1:] * (7 - len(curve)) == wanted


def test_no_table_of_another_lowest_bit_is_taken():
    """Greedy, too, is held against the best of all."""
    profile = {16: 1000, 96: 2, 256: 5, 512: 1}
    best = px.fit(profile, 3, lsb_span=0)
    greedy = px.fit(profile, 3, lsb_span=0, method="greedy")
    assert greedy.lower_bound_bytes == best.wastage_bytes <= greedy.wastage_bytes


def test_a_tail_rule_on_a_grid():
    """Classes that no size is rounded up to count under a tail rule, in steps as well."""
    rule = px.TailRule(0.0, 4096, 1)
    best = px.fit({1000: 5, 2000: 3}, 2, align_bytes=8, grid=TCMALLOC, tail_rule=rule)
    assert all(size % (8 if size <= 1024 else 128) == 0 for size in best.classes.tolist())
    best.check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": [8, 128]}, r"grid is a sequence of \(end or None, step\), got \[8, 128\]"),
        ({"grid": [(None, 16), (None, 128)]}, "only the last step of the grid has no end"),
        ({"grid": []}, "0 steps, allowed are 1 to 4"),
        ({"grid": [(i, 16) for i in (16, 32, 48, 64)] + [(None, 16)]}, "5 steps"),
        ({"grid": [(1024, 16)]}, r"grid ends at 1024; the last step must be \(None, step\)"),
        ({"grid": [(64, 16), (32, 32), (None, 64)]}, "ends of the grid must rise"),
        ({"grid": [(64, 32), (None, 16)]}, "powers of two that do not fall"),
        ({"grid": [(64, 16), (None, 48)]}, "powers of two that do not fall"),
        ({"grid": [(1024, 8), (None, 128)]}, r"steps of 8, but align_bytes \(16\)"),
        ({"grid": GO, "align_bytes": 8, "header_bytes": 8, "bits": 5}, "is no multiple"),
        (
            {"grid": TCMALLOC, "align_bytes": 8, "forced": [1032]},
            r"1032, which is no multiple of 128 \(grid\)",
        ),
        (
            {"grid": TCMALLOC, "align_bytes": 8, "largest_bytes": 5000},
            r"largest_bytes is 5000, which is no multiple of 128 \(grid\)",
        ),
        ({"lsb_span": -1}, "lsb_span must be between 0"),
        (
            {"lsb_span": 3, "forced": [16], "largest_bytes": 65536},
            r"largest_bytes is 65536, the lowest set bit of which is 16; lsb_span \(3\) allows 4",
        ),
        ({"lsb_span": 0, "forced": [16, 32]}, "a forced class is 32, the lowest set bit"),
    ],
)
def test_grids_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        px.fit({100: 1, 2000: 3}, 8, **options)


def test_exports_take_what_their_errors_advise():
    profile = {16: 300, 40: 12, 100: 60, 1100: 7, 2000: 40, 2500: 30, 9000: 2, 30000: 1}
    plain = px.fit(profile, 8, align_bytes=8, largest_bytes=32768)
    for target, grid, largest in (("tcmalloc", TCMALLOC, 262144), ("go", GO, 32768)):
        with pytest.raises(ValueError, match=r"grid=\[") as caught:
            px.fit(profile, 8, align_bytes=8, largest_bytes=largest).export(target)
        advised = ast.literal_eval(str(caught.value).split("grid=")[1].split(")]")[0] + ")]")
        assert advised == grid
        best = px.fit(profile, 8, align_bytes=8, grid=grid, largest_bytes=largest)
        assert best.export(target)
        # Three bits and the first are a coarser way to the same rule.
        coarse = px.fit(profile, 8, align_bytes=16, bits=4, largest_bytes=largest)
        assert best.wastage_bytes < coarse.wastage_bytes
    assert plain.wastage_bytes <= best.wastage_bytes


@pytest.mark.parametrize("bits", [5, 7])
def test_compressed_lsb_is_what_scudo_packs(bits):
    profile = {16: 30, 48: 12, 112: 60, 320: 7, 496: 40, 1008: 40, 9000: 2, 30000: 1}
    options = {
        "bits": bits, "header_bytes": 16, "prefix": "table", "largest_bytes": 65552,
    }  # fmt: skip
    far = px.fit(profile, 32, **options)
    with pytest.raises(ValueError, match=r"compressed LSB.*lsb_span=3"):
        far.export("scudo", compressed_lsb=True)
    best = px.fit(profile, 32, lsb_span=3, **options)
    assert "least set bits fit in two bits a class" in best.export("scudo", compressed_lsb=True)
    assert best.wastage_bytes >= far.wastage_bytes
    assert not math.isnan(best.table.percent)


@pytest.mark.parametrize("file", ["clang-cum.xml", "sqlite3-cum.xml"])
def test_real_programs_on_the_grids_of_allocators(file, shared_data):
    profile = px.load_profile(shared_data / "sizeclass" / "profiles" / file)
    for target, grid, largest, k in (("tcmalloc", TCMALLOC, 262144, 46), ("go", GO, 32768, 67)):
        best = px.fit(profile, k, align_bytes=8, grid=grid, largest_bytes=largest)
        assert best.gap == 0
        assert best.export(target)
        coarse = px.fit(profile, k, align_bytes=8, bits=4, largest_bytes=largest)
        assert best.wastage_bytes < coarse.wastage_bytes

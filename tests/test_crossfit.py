"""Tables on programs that they were not made from."""

import math
import re

import numpy as np
import pytest

import pyallocx as px


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


def test_runs_of_one_program_are_left_out_together():
    programs = [{16 * s: s for s in range(i, 20 + i)} for i in (1, 1, 4, 9, 9)]
    groups = ["a", "a", "b", 3, 3]
    result = px.cross_validate(programs, 5, groups=groups, draws=30, seed=1, progress=False)
    largest = int(result.pooled.classes[-1])
    for row, program, group in zip(result.rows, programs, groups, strict=True):
        assert row.group == str(group)
        others = [p for p, other in zip(programs, groups, strict=True) if other != group]
        table = px.fit(others, 5, weights="bytes", largest_bytes=largest)
        assert row.held_out_percent == pytest.approx(table.evaluate(program).percent)
    # Groups are drawn, each with all of its programs.
    drawn = np.random.default_rng(1).integers(0, 3, (30, 3))
    missed = [int((drawn != i).all(1).sum()) for i in range(3)]
    assert [row.draws for row in result.rows] == [missed[i] for i in (0, 0, 1, 2, 2)]
    assert result.rows[0].low_percent < result.rows[0].high_percent
    assert "5 size classes, 5 programs in 3 groups: " in repr(result)
    note = "draws hold fewer groups than held out does"
    assert note in repr(result)
    assert note in result._repr_html_()
    assert re.search(r"(?m)^program 4 +3 ", repr(result))
    # A copy of a program in the pool makes it look as if the table held elsewhere.
    alone = px.cross_validate(programs, 5, draws=0, progress=False)
    assert alone.held_out_percent < result.held_out_percent
    assert [row.group for row in alone.rows] == [row.program for row in alone.rows]
    assert "group" not in repr(alone)


@pytest.mark.parametrize("groups", [None, "aab"])
def test_two_groups_have_no_interval(groups):
    programs = [{16 * s: s for s in range(i, 20 + i)} for i in (1, 4, 9)]
    if groups is None:
        programs = programs[:2]
    result = px.cross_validate(
        programs, 5, groups=groups and list(groups), draws=50, progress=False
    )
    assert math.isnan(result.low_percent)
    assert math.isnan(result.high_percent)
    assert all(row.draws == 0 and math.isnan(row.low_percent) for row in result.rows)
    lines = repr(result).splitlines()
    assert all(line.endswith(" -") for line in lines[2 : 3 + len(programs)])
    assert lines[-1].startswith("no interval: 2 ")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a", "b"], "2 groups for 3 profiles"),
        ("abc", "one label for each"),
        (["a"] * 3, "one group; to leave groups out takes at least two"),
        ([1, "1", 2], "look alike"),
    ],
)
def test_groups_that_are_none(groups, message):
    with pytest.raises(ValueError, match=message):
        px.cross_validate([{16: 1}, {32: 1}, {48: 1}], groups=groups, progress=False)

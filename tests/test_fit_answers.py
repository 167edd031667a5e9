"""What a fit says: rounding is never wastage, and texts, pictures and errors fit what was asked."""

import copy
import pickle

import numpy as np
import pytest

import pyallocx as px
from pyallocx import cli_fit
from pyallocx.cli import main
from pyallocx.league import rivals

SHARES = [
    ([{16: 5}, {16: 5, 32: 1}], {}),
    ([{16: 5}, {16: 7, 32: 3, 4096: 1}, {48: 11}], {"classes": 4}),
    ([{17: 3, 100: 7, 3000: 1}, {24: 5, 300: 3, 9000: 3}, {33: 1}], {"classes": 3}),
    ([{17: 3, 100: 7, 3000: 1}, {24: 5, 300: 3, 9000: 3}], {"header_bytes": 8, "align_bytes": 8}),
    ([{1 << 20: 3, 1: 7}, {(1 << 20) + 1: 5, 16: 3}], {"classes": 1, "page_cap": 0.5}),
    ([{100: 1, 300: 2}, {1200: 5}], {"tail_rule": "gperftools"}),
]


@pytest.mark.parametrize(("programs", "wanted"), SHARES)
def test_nothing_is_negative_and_all_adds_up(programs, wanted):
    best = px.fit(programs, weights="bytes", **wanted)
    assert not best.exact
    assert best.wastage_bytes == sum(best.parts.values()) == best.table.wastage_bytes
    assert best.wastage_bytes >= best.lower_bound_bytes >= 0
    assert 0 < best.noise_bytes < 1e-3
    assert best.gap <= best.noise_bytes + 1e-9 * best.wastage_bytes
    assert "-0" not in repr(best)
    values = best.curve()["wastage_bytes"]
    assert (values == 0).any() == (best.floor_bytes == 0)
    assert (values >= 0).all()
    best.check()


@pytest.mark.parametrize("seed", range(5))
def test_whole_tables_waste_nothing(seed):
    rng = np.random.default_rng(seed)
    programs = [
        {int(size): int(rng.integers(1, 1000)) for size in 16 * rng.integers(1, 2000, 30)}
        for _ in range(7)
    ]
    best = px.fit(programs, 254, weights="bytes")
    assert (best.wastage_bytes, best.lower_bound_bytes, best.floor_bytes) == (0, 0, 0)
    assert best.best_addition() is None
    assert not [one for one in rivals(best) if one.wastage_bytes < 0]


def test_the_text_knows_rounding(tmp_path, capsys):
    (tmp_path / "one").write_text("16 5\n")
    (tmp_path / "two").write_text("16 5\n32 1\n")
    assert main(["fit", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    out = capsys.readouterr().out
    assert "wastage: 0 B, 0.00%" in out
    assert " 0 of " in out
    assert "-0" not in out


def test_presets_within_rounding_are_not_ahead():
    best = px.fit([{16: 5}, {16: 7, 40: 3}], 1, weights="bytes")
    near = rivals(best)[0]._replace(wastage_bytes=best.wastage_bytes * (1 - 1e-15))
    assert "0 of 1 waste less" in cli_fit._standing(best, [near])[0]
    ahead = near._replace(wastage_bytes=best.wastage_bytes * 0.99)
    assert "1 of 1 waste less" in cli_fit._standing(best, [ahead])[0]


def test_nothing_is_in_percent_of_nothing(tmp_path, capsys):
    (tmp_path / "zero").write_text("0 1\n")
    plot = tmp_path / "z.svg"
    assert main(["fit", str(tmp_path / "zero"), "--classes", "2", "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "nan" not in out
    assert "zero, 1 request of 0 B" in out
    assert "1 more class would save nothing" in out
    assert "1 size class wastes 16 B" in plot.read_text()
    best = px.fit({0: 3}, 1)
    assert "16 B: 48 B wasted, - of requested" in repr(best)
    result = px.cross_validate([{0: 1}, {0: 2, 16: 1}], 1, draws=0, weights="count")
    assert "nan" not in repr(result)


def test_scaled_counts_are_called_weighted(tmp_path, capsys):
    names = [str(tmp_path / name) for name in ("one", "two")]
    for name in names:
        px.Profile([16, 100], [3, 1]).save(name)
    for weights, words in (("bytes", "6 weighted requests"), ("count", ": 6 requests")):
        argv = ["fit", *names, "--weights", weights, "--largest", "32"]
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert words in out
        assert ("left out: 2 weighted requests" in out) == (weights == "bytes")


def test_the_picture_names_the_constraints(tmp_path):
    best = px.fit({17: 5, 100: 3, 500: 2}, 2)
    from pyallocx._sizeplot import plot_fit

    ax = plot_fit(best, best.curve(), rivals(best))
    texts = [text.get_text() for text in ax.texts]
    assert any(text.startswith("under these constraints at least ") for text in texts)
    # No label lies over that line's.
    renderer = ax.get_figure().canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in ax.texts if text.get_text()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_fit_equals_its_copies():
    best = px.fit({16: 5, 40: 3, 300: 2}, 2)
    for again in (pickle.loads(pickle.dumps(best)), copy.deepcopy(best)):
        assert again == best
        assert hash(again) == hash(best)
    assert best == px.fit({16: 5, 40: 3, 300: 2}, 2)
    assert best != px.fit({16: 5, 40: 3, 300: 2}, 1)
    assert best != px.fit({16: 5, 40: 3, 300: 3}, 2)
    assert best != px.fit({16: 5, 40: 3, 300: 2}, 2, page_cap=None)
    assert best != "a fit"


def test_a_fit_for_a_table_map_is_one():
    profile = {24: 100, 40: 7, 100: 20, 1000: 3, 9000: 2}
    best = px.fit(profile, 32, bits=7, header_bytes=16, prefix="table", largest_bytes=65552)
    table, search = best.to_map("table"), best.to_map("search")
    assert table.delta_bytes == 16
    for size in (0, 1, 24, 40, 41, 1000, 65536):
        assert table.class_of(size + 16) == search.class_of(size + 16)
    assert best.to_map().delta_bytes == 0
    with pytest.raises(ValueError, match="no table map"):
        best.to_map("table", delta_bytes=0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda ps: px.cross_validate(ps, foo=1), TypeError, "cross_validate.. got .*'foo'"),
        (lambda ps: px.cross_validate(ps, seed=-1), ValueError, "seed must be between 0"),
        (lambda ps: px.cross_validate(ps, seed=1.5), TypeError, "seed must be an integer"),
        (
            lambda ps: px.Profile.combine([px.Profile([16], [1]), *ps]),
            TypeError,
            "profile 2 must be a Profile, got dict",
        ),
        (lambda ps: px.Profile.combine(px.Profile([1], [1])), TypeError, "got one Profile"),
        (lambda ps: px.SizeMap(None), TypeError, "classes must be a sequence .* got None"),
        (lambda ps: px.fit(ps, forced=5), TypeError, "forced must be a sequence .* got 5"),
    ],
)
def test_errors_speak_of_what_was_given(call, error, words):
    with pytest.raises(error, match=words):
        call([{16: 3}, {32: 1}])


def test_bytes_that_round_to_nothing_have_no_sign():
    assert px.units.format_bytes(-1e-12) == "0 B"
    assert px.units.format_bytes(-0.06) == "-0.1 B"
    assert repr(px.cross_validate([{16: 1}, {16: 2}], 1, draws=0)).startswith("1 size class, 2")


def test_equal_rows_have_a_star_each():
    table = px.SizeMap([16, 64])
    result = px.league({16: 3, 60: 1}, [], tables={"a": table, "b": table, "c": px.SizeMap([64])})
    a, b, c = result.lines()[1:]
    assert a.count("*") == b.count("*") == 2
    assert c.count("*") == 0


def test_what_go_does_not_take_is_said():
    assert "28 classes are left out" in px.export(px.preset("go"), "go")
    best = px.fit({16: 3, 30000: 1}, 8, largest_bytes=32768, bits=4)
    assert "left out" not in px.export(best, "go")

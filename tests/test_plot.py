import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import SweepResult
from pyallocx.answer import explain

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402


def result(keep=(0, 16, 64, 256, 1024, 2048, 4096, math.inf), policies=(), zero=True, scale=1.0):
    rows = []
    for number, policy in enumerate(policies or ("cut",)):
        for step, value in enumerate(keep):
            calls = 0 if zero and step == len(keep) - 1 else int(4000 * scale / 2.2**step)
            if policy == "all":
                calls, step = 0, len(keep)
            rows.append(
                {
                    "policy": policy,
                    "keep_bytes": value,
                    "waste_bytes": (3000 + 900 * step**1.7) * (1 + 0.3 * number),
                    "list_frees": int(calls * (1 - 0.15 * number)),
                    "status": "ok",
                }
            )
    keys = ["policy", "keep_bytes"] if policies else ["keep_bytes"]
    names = [*keys, "waste_bytes", "list_frees", "status"]
    return SweepResult(
        {name: [row[name] for row in rows] for name in names},
        grid_keys=keys, system="demo", x="waste_bytes", y="list_frees",
        metadata={
            "trace": {"name": "git.npz", "events": 12345},
            "landmarks": [({"keep_bytes": 2048}, "Firefox")],
        },
    )  # fmt: skip


def new_ax():
    return Figure(figsize=(8, 5)).add_subplot()


def labels(ax):
    return [text for text in ax.texts if text.get_text()]


def boxes(ax):
    renderer = ax.figure.canvas.get_renderer()
    return [text.get_window_extent(renderer) for text in labels(ax)]


CASES = {
    "curve": result(),
    "curve without zero": result(zero=False),
    "many calls": result(scale=1e6),
    "one cell": result(keep=(64,)),
    "two cells": result(keep=(0, 64)),
    "narrow": result(keep=(0, 64, 128), zero=False),
    "policies": result(policies=("cut", "age", "all")),
    "crowd": result(keep=tuple(range(0, 3000, 60)), policies=("cut", "age")),
    "texts only": result(keep=(64,), policies=("cut", "age", "all")),
}


@pytest.mark.parametrize("name", CASES)
def test_labels_never_touch(name, tmp_path):
    path = tmp_path / "a.png"
    ax = CASES[name].plot(path=path)
    assert path.stat().st_size > 5000
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes(ax), 2))
    frame = ax.get_window_extent()
    for box in boxes(ax):
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1
        assert frame.y0 <= box.y0
        assert box.y1 <= frame.y1


def test_every_point_is_named_with_its_unit():
    texts = {text.get_text() for text in labels(CASES["curve"].plot(ax=new_ax()))}
    assert {"0 B", "16 B", "∞", "4 KiB", "Firefox: 2 KiB"} <= texts
    assert sum(text.startswith("knee: ") for text in texts) == 1
    assert len(texts) == 8


def test_words_around_the_picture():
    ax = CASES["curve"].plot(path="/dev/null")
    assert ax.get_xlabel() == "waste [bytes]"
    assert ax.get_ylabel() == "list frees [calls]"
    assert "git.npz, 12,345 events" in ax.figure.get_suptitle()
    answer = ax.get_title(loc="left")
    assert "% fewer list frees than at 0 B, for +" in answer
    assert "Firefox, 2 KiB" in answer
    assert CASES["curve"].plot(path="/dev/null", title="mine").figure.get_suptitle() == "mine"


def test_a_name_is_no_formula(tmp_path):
    ax = result(keep=(0, 64)).plot(path=tmp_path / "a.png", title="a$b_{c$")
    assert ax.figure.get_suptitle() == "a$b_{c$"


def test_two_axes_share_a_figure():
    left, right = Figure(figsize=(12, 5)).subplots(1, 2)
    CASES["curve"].plot(ax=left)
    CASES["policies"].plot(ax=right)
    assert left.get_title(loc="left").startswith("demo: git.npz, 12,345 events\nknee")


def test_a_series_per_policy_and_one_label_where_all_cells_coincide():
    ax = CASES["policies"].plot(ax=new_ax())
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["Pareto front", "cut, by keep_bytes", "age, by keep_bytes", "all"]
    assert "all" in {text.get_text() for text in labels(ax)}
    colours = {line.get_color() for line in ax.lines if line.get_label() in names[1:]}
    assert len(colours) == 3


def test_zero_calls_have_a_place_near_the_smallest_count():
    ax = CASES["many calls"].plot(ax=new_ax())
    assert ax.get_yscale() == "symlog"
    ticks = ax.yaxis.get_majorticklocs()
    assert ticks[0] == 0
    smallest = min(v for v in CASES["many calls"]["list_frees"] if v > 0)
    assert smallest / 10 < ticks[1] <= smallest
    assert CASES["narrow"].plot(ax=new_ax()).get_yscale() == "linear"


def test_marks_of_the_caller():
    texts = [t.get_text() for t in labels(CASES["curve"].plot(ax=new_ax(), mark={16: "ours"}))]
    assert "ours: 16 B" in texts


def test_other_columns_and_no_numbers():
    ax = CASES["curve"].plot("list_frees", "waste_bytes", ax=new_ax())
    assert ax.get_xlabel() == "list frees [calls]"
    with pytest.raises(ValueError, match="no measured row"):
        CASES["curve"][:0].plot(ax=new_ax())
    with pytest.raises(TypeError, match="numbers"):
        CASES["policies"].plot("policy", ax=new_ax())


def test_failed_rows_are_left_out(tmp_path):
    res = SweepResult(
        {"k": [1, 2], "a_bytes": [1, None], "b": [np.nan, 2], "status": ["ok", "error: x"]},
        grid_keys=["k"], system="s", x="a_bytes", y="a_bytes",
    )  # fmt: skip
    res.plot(path=tmp_path / "a.svg")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


def test_an_unknown_format_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="no picture format 'xyz'"):
        CASES["curve"].plot(path=tmp_path / "a.xyz")
    assert not list(tmp_path.iterdir())


def test_a_picture_for_a_file_touches_no_global_state(tmp_path):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    CASES["curve"].plot(path=tmp_path / "a.png")
    assert plt.get_fignums() == before


def test_without_a_file_it_is_a_pyplot_figure(monkeypatch):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ax = CASES["curve"].plot()
    assert ax.figure.number in plt.get_fignums()
    plt.close(ax.figure)


def test_matplotlib_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pyallocx\[plot\]"):
        CASES["curve"].plot(path="a.png")


def test_grids_with_different_parameters():
    grids = [
        {"policy": "byte_cut", "retain_bytes": [0, 64, 2048]},
        {"policy": "low_water", "tick_operations": [10, 1000]},
        {"policy": "age", "idle_operations": 100},
        {"policy": "intrusive"},
    ]
    res = px.sweep(px.Arena, px.synthesize(5000, seed=1, keys=20), grids)
    ax = res[res["policy"] != "intrusive"].plot(ax=new_ax(), mark={10: "busy", 64: "line"})
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names[-3:] == [
        "byte_cut, by retain_bytes", "low_water, by tick_operations", "age, idle_operations 100",
    ]  # fmt: skip
    texts = " ".join(text.get_text() for text in labels(ax))
    assert "busy: low_water, tick_operations 10" in texts
    assert "line: byte_cut, retain_bytes 64 B" in texts
    assert "nan" not in texts + ax.get_title(loc="left")
    assert "intrusive" in [t.get_text() for t in res.plot(ax=new_ax()).get_legend().get_texts()]


@pytest.mark.parametrize(
    ("low", "high"), [(1033, 1340), (891, 1340), (2333, 3303), (10930, 15082), (0, 9), (5e9, 8e9)]
)
def test_ticks_of_a_narrow_range_are_exact_and_differ(low, high):
    res = SweepResult(
        {"keep_bytes": [0, 64], "waste_bytes": [low, high], "calls": [9, 1]},
        grid_keys=["keep_bytes"], system="demo", x="waste_bytes", y="calls",
    )  # fmt: skip
    ax = res.plot(ax=new_ax())
    first, last = ax.get_xlim()
    shown = [tick for tick in ax.xaxis.get_majorticklocs() if first <= tick <= last]
    texts = ax.xaxis.get_major_formatter().format_ticks(shown)
    assert len(shown) >= 2
    for tick, text in zip(shown, texts, strict=True):
        number, unit = text.replace(",", "").split()
        assert float(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit) == tick


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("waste_bytes", 44490.82893133, "43.4 KiB"),
        ("waste_bytes", 44490.0, "44,490 B"),
        ("waste_bytes", 1536.0000000001, "1.5 KiB"),
        ("waste_bytes", 512.3333333, "512.3 B"),
        ("waste_bytes", 0.125, "0.125 B"),
        ("waste_bytes", 123456789.123, "118 MiB"),
        ("calls", 0.30000000000000004, "0.3"),
        ("calls", 0.001, "0.001"),
        ("calls", 2.9999999999999996, "3"),
        ("calls", 1e7, "$10^{7}$"),
        ("mean_ns", 0.0025, "0.0025 ns"),
        ("mean_ns", 1234.5678, "1,235 ns"),
    ],
)
def test_a_tick_can_be_read(column, value, text):
    # One cell: its own value is a tick.
    res = SweepResult(
        {"keep_bytes": [0], column: [value], "others": [9]},
        grid_keys=["keep_bytes"], system="demo", x=column, y="others",
    )  # fmt: skip
    ax = res.plot(ax=new_ax())
    assert value in ax.xaxis.get_majorticklocs()
    assert ax.xaxis.get_major_formatter()(value) == text


@given(st.floats(0, 2**60), st.sampled_from(["waste_bytes", "calls", "mean_ns"]))
def test_no_tick_is_long(value, column):
    from pyallocx.plot import _tick_text

    assert len(_tick_text(column, value)) <= 28
    assert "..." not in _tick_text(column, value)
    assert len(_tick_text("waste_bytes", value + 0.123456)) <= 28


def two_keys(**metadata):
    cells = [(chunk, keep) for chunk in (4096, 8192) for keep in (0, 16, 64, 2048)]
    factor = {4096: 1, 8192: 10}
    return SweepResult(
        {
            "chunk_bytes": [chunk for chunk, _ in cells],
            "keep_bytes": [keep for _, keep in cells],
            "waste_bytes": [factor[chunk] * (100 + keep) for chunk, keep in cells],
            "calls": [factor[chunk] * 1000 // (1 + keep) for chunk, keep in cells],
        },
        grid_keys=["chunk_bytes", "keep_bytes"], system="demo", x="waste_bytes", y="calls",
        metadata={"landmarks": [({"keep_bytes": 2048, "chunk_bytes": 8192}, "known")]} | metadata,
    )  # fmt: skip


def test_where_two_keys_vary_names_are_shown():
    ax = two_keys(context=["chunk_bytes"]).plot(ax=new_ax())
    answer = " ".join(ax.get_title(loc="left").split())
    assert (
        "knee (of linear scales), chunk_bytes 4 KiB, keep_bytes 64 B: 98 % fewer calls than at "
        "chunk_bytes 4 KiB, keep_bytes 0 B, for +64 B" in answer
    )
    assert "than at chunk_bytes 8 KiB, keep_bytes 0 B" in answer
    texts = {text.get_text() for text in labels(ax)}
    assert "knee: chunk_bytes 4 KiB, keep_bytes 64 B" in texts
    assert "known: chunk_bytes 8 KiB, keep_bytes 2 KiB" in texts
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "chunk_bytes 8 KiB, by keep_bytes" in names


def test_a_range_is_of_numbers_that_follow_each_other():
    def texts_of(values, waste):
        res = SweepResult(
            {"key": values, "waste_bytes": waste, "calls": [200 - w for w in waste]},
            grid_keys=["key"], system="demo", x="waste_bytes", y="calls",
        )  # fmt: skip
        found = {text.get_text() for text in labels(res.plot(ax=new_ax()))}
        return {text.removeprefix("best: ").removeprefix("least churn: ") for text in found}

    assert texts_of([4, 1, 2, 8], [5, 5, 5, 9]) == {"1 … 4", "8"}
    assert texts_of([1, 2, 4, 8], [5, 9, 5, 9]) == {"1, 4", "8 (same: 2, 8)"}
    assert texts_of(["a", "b", "c", "d"], [5, 5, 5, 9]) == {"a = b = c", "d"}
    assert texts_of(list("abcdefg"), [5] * 6 + [9]) == {"a = b = c = 3 more", "g"}


@pytest.mark.parametrize("keep", [(0, 512, 2048, math.inf), (math.inf, 2048, 512, 0)])
def test_a_name_belongs_to_one_cell_of_those_on_its_point(keep):
    res = SweepResult(
        {
            "keep_bytes": list(keep),
            "waste_bytes": [1 if k == 0 else 5 for k in keep],
            "calls": [100 if k == 0 else 7 for k in keep],
        },
        grid_keys=["keep_bytes"], system="demo", x="waste_bytes", y="calls",
        metadata={"landmarks": [({"keep_bytes": 2048}, "Firefox")]},
    )  # fmt: skip
    texts = {text.get_text() for text in labels(res.plot(ax=new_ax()))}
    assert texts == {"0 B", "Firefox: 2 KiB (same: 512 B … ∞)"}


# --- curves over one parameter


def two_policies():
    return result(keep=(4096, 65536, 1 << 20), policies=("cut", "age"), zero=False)


def test_curves_have_the_values_of_the_table(tmp_path):
    res = two_policies()
    ax = res.plot_against("keep_bytes", "list_frees", path=tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert set(lines) == {"cut", "age"}
    for policy, line in lines.items():
        rows = res[res["policy"] == policy]
        assert line.get_xdata().tolist() == rows["keep_bytes"].tolist()
        assert line.get_ydata().tolist() == rows["list_frees"].tolist()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["4 KiB", "64 KiB", "1 MiB"]
    assert ax.get_ylabel() == "list frees [calls]"


def test_curves_of_several_columns_and_what_is_left_out(tmp_path):
    res = result(keep=(64, 16, 256, math.inf), zero=False)
    ax = res.plot_against("keep_bytes", ax=new_ax())
    (line,) = ax.get_lines()
    assert line.get_xdata().tolist() == [16, 64, 256]  # sorted, without infinity
    assert ax.get_legend() is None
    with pytest.raises(ValueError, match="one unit"):
        res.plot_against("keep_bytes", "list_frees", "waste_bytes")
    ax = two_policies().plot_against("keep_bytes", "waste_bytes", "keep_bytes", ax=new_ax())
    assert [line.get_label() for line in ax.get_lines()] == [
        "waste [bytes], cut", "keep [bytes], cut", "waste [bytes], age", "keep [bytes], age",
    ]  # fmt: skip


def test_curves_refuse_what_was_not_swept():
    with pytest.raises(ValueError, match="was not swept; swept were policy, keep_bytes"):
        two_policies().plot_against("waste_bytes")
    with pytest.raises(ValueError, match="no measured row"):
        result(keep=(math.inf,)).plot_against("keep_bytes")


def test_more_series_than_colours_are_told_apart():
    many = tuple(f"policy {number}" for number in range(13))
    res = result(keep=(16, 64), policies=many, zero=False)
    for ax in (res.plot(ax=new_ax()), res.plot_against("keep_bytes", ax=new_ax())):
        lines = [line for line in ax.get_lines() if line.get_label().split(",")[0] in many]
        looks = {
            (line.get_color(), line.get_marker(), line.get_markerfacecolor(), line.get_linestyle())
            for line in lines
        }
        assert len(looks) == len(lines) == 13


def test_a_long_title_is_not_cut_off():
    """Of words, or of one word without a space: the picture is as wide as it is."""
    for name in ("2,000 synthetic methods in two streams, 4,000 allocs (px.f())", "W" * 150):
        res = SweepResult(
            {"key": [1, 2, 3], "waste_bytes": [1, 2, 3], "calls": [3, 2, 1]},
            grid_keys=["key"], system="demo", x="waste_bytes", y="calls",
            metadata={"trace": {"name": name, "events": 6000}},
        )  # fmt: skip
        ax = res.plot()
        figure = ax.get_figure()
        figure.draw_without_rendering()
        (title,) = (t for t in figure.texts if t.get_text().startswith("demo"))
        assert title.get_window_extent().x1 <= figure.bbox.x1
        assert "".join(title.get_text().split()) == f"demo:{''.join(name.split())},6,000events"


def test_what_the_subtitle_compares_is_marked():
    res = SweepResult(
        {"key": [1, 2], "waste_bytes": [1, 2], "calls": [30, 2]},
        grid_keys=["key"], system="demo", x="waste_bytes", y="calls",
    )  # fmt: skip
    assert "least churn: 2" in {text.get_text() for text in labels(res.plot(ax=new_ax()))}
    assert "<- least churn" in repr(res)


def test_a_gain_is_no_price():
    res = SweepResult(
        {"key": [1, 2], "waste_bytes": [2048, 1024], "calls": [30, 2]},
        grid_keys=["key"], system="demo", x="waste_bytes", y="calls",
    )  # fmt: skip
    (line,) = explain(res)
    assert line.endswith("(30 -> 2), and 1 KiB less of waste.")
    title = res.plot(ax=new_ax()).get_title(loc="left")
    assert title.endswith(", and 1 KiB less")


def test_best_says_what_is_best():
    def table(waste, calls):
        return SweepResult(
            {"key": list(range(len(waste))), "waste_bytes": waste, "calls": calls},
            grid_keys=["key"], system="demo", x="waste_bytes", y="calls",
        )  # fmt: skip

    same = table([1024, 1024], [5, 5])
    assert "<- best" not in repr(same)
    assert explain(same) == ["All 2 measured cells are the same: 5 calls, 1 KiB of waste."]
    less = table([1024, 2048], [5, 5])
    assert "<- best" in repr(less)
    assert explain(less) == [
        "key 0 (best): no cell has fewer calls (5), and of those with as few it has the least "
        "waste (1 KiB)."
    ]

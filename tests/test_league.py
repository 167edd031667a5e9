"""The league of presets, and the pictures of size classes."""

import csv

import numpy as np
import pytest

import pyallocx as px
from pyallocx.league import rivals
from pyallocx.presets import waste_percent

PROGRAMS = [
    px.Profile([16, 24, 100, 5000], [50, 100, 40, 2], name="one"),
    px.Profile([8, 33, 1000, 60000, 70000], [9, 7, 40, 2, 1], name="two"),
]


def test_rows_are_sorted_and_as_the_definition_says():
    result = px.league(PROGRAMS, ["jemalloc", "linux-kmalloc", "gperftools", "glibc"])
    assert result.programs == ("one", "two")
    assert [row.name for row in result.rows][-1] == "linux-kmalloc"  # it ends at 8 KiB
    means = [row.mean_percent for row in result.rows[:-1]]
    assert means == sorted(means)
    for row in result.rows:
        made = px.preset_classes(row.name)
        assert row.mean_percent == pytest.approx(np.mean(row.percents))
        for program, percent, out in zip(PROGRAMS, row.percents, row.excluded, strict=True):
            assert percent == waste_percent(
                made.classes, made.header_bytes, program.sizes, program.counts
            )
            assert out == (2 if row.name == "linux-kmalloc" and program.name == "two" else 0)


def test_a_cap_is_that_of_a_fit():
    program = {100: 5, 9000: 1, 33000: 2}
    names = ["jemalloc", "scudo-android64-19", "supermalloc"]
    for cap, page in ((2, 4096), (0.5, 4096), (1, 1 << 14)):
        for row in px.league(program, names, page_cap=cap, page_bytes=page).rows:
            cost = px.wastage(px.preset(row.name), program, page_cap=cap, page_bytes=page)
            assert row.percents[0] == pytest.approx(cost.percent)
    one, two = (px.league(program, ["scudo-android64-19"], page_cap=cap) for cap in (None, 0.5))
    assert two.rows[0].mean_percent < one.rows[0].mean_percent
    with pytest.raises(ValueError, match="page_cap"):
        px.league(program, page_cap=-1)


def test_scudo_is_net_of_its_header():
    (row,) = px.league({16: 1}, ["scudo-android64-19"]).rows
    assert (row.percents, row.classes) == ((0.0,), 32)


def test_all_presets_and_a_table_of_ones_own():
    best = px.fit(PROGRAMS[0], 4)
    result = px.league(PROGRAMS[0], tables={"ours": best.to_map()})
    assert {row.name for row in result.rows} == {*px.preset_names(), "ours"}
    assert result.best(0).percents[0] == min(row.percents[0] for row in result.rows if row.complete)
    text = repr(result)
    assert len(text.splitlines()) == len(result.rows) + 1 + len(result.notes())
    # All that are equal to the least.
    least = [row for row in result.rows if row.complete and row.percents == result.rows[0].percents]
    assert text.count("*") == 2 * len(least)
    assert result.to_dicts()[0]["percent"] == {"one": result.rows[0].percents[0]}


def test_the_larger_requests_are_left_out():
    all_of_it = px.league(PROGRAMS[1], ["jemalloc"], limit_bytes=1 << 20)
    (whole,) = all_of_it.rows
    (part,) = px.league(PROGRAMS[1], ["jemalloc"]).rows
    assert whole.percents != part.percents
    assert whole.classes > part.classes == 45


def test_what_is_in_no_figure_is_counted():
    result = px.league(PROGRAMS, ["jemalloc", "linux-kmalloc"])
    none, some = result.above
    assert none == (0, 0, 0, 0)
    assert (some.requests, some.requested_bytes, some.request_share) == (1, 70000, 1 / 59)
    assert some.byte_share == 70000 / PROGRAMS[1].total_bytes
    assert result.notes() == [
        "above 64 KiB, in no figure: two, 1 request (1.69%) of 68.4 KiB (30.4% of its bytes)",
        "up to 64 KiB, without a class in linux-kmalloc: two, 2 requests",
    ]
    assert repr(result).endswith("\n".join(result.notes()))
    assert not px.league(PROGRAMS[0], ["jemalloc"]).notes()
    (at,) = px.league({65536: 3, 65537: 1}, ["jemalloc"]).above
    assert (at.requests, at.requested_bytes) == (1, 65537)


def test_csv(tmp_path):
    result = px.league(PROGRAMS, ["jemalloc", "linux-kmalloc"])
    result.to_csv(tmp_path / "league.csv")
    rows = list(csv.DictReader((tmp_path / "league.csv").open()))
    assert [row["name"] for row in rows] == ["jemalloc", "linux-kmalloc"]
    assert float(rows[0]["one"]) == result.rows[0].percents[0]
    assert [float(row["excluded"]) for row in rows] == [0, 2]
    assert [float(row["two excluded"]) for row in rows] == [0, 2]
    assert [float(row["two above_requests"]) for row in rows] == [1, 1]
    assert [float(row["two above_bytes"]) for row in rows] == [70000, 70000]
    assert [float(row["one above_bytes"]) for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: px.league([]), "no profile"),
        (lambda: px.league(PROGRAMS, names=["a"]), "1 names for 2 profiles"),
        (lambda: px.league({70000: 1}), "program 1 requests no bytes in sizes up to 65536"),
        (lambda: px.league({0: 1}), "requests no bytes"),
        (lambda: px.league({16: 1}, ["jemaloc"]), "no preset 'jemaloc'"),
    ],
)
def test_wrong_use(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_golden_figures(shared_data):
    # Measured elsewhere, in the same definition: jemalloc, Go, Android's scudo.
    names = ("cc1plus-cum", "clang-cum", "git-cum", "sqlite3-cum")
    base = shared_data / "sizeclass" / "profiles"
    result = px.league(
        [px.load_profile(base / f"{name}.xml") for name in names],
        ["jemalloc", "go", "scudo-android64-19"],
    )
    found = {row.name: (row.classes, *(round(p, 2) for p in row.percents)) for row in result.rows}
    assert found == {
        "jemalloc": (45, 5.24, 3.55, 5.52, 13.23),
        "go": (71, 3.58, 3.19, 7.85, 9.50),
        "scudo-android64-19": (32, 9.74, 7.55, 13.79, 15.25),
    }


# --- presets by the measure of a fit


def test_rivals_are_measured_on_the_same_requests():
    best = px.fit(PROGRAMS[1], 8, largest_bytes=65536)
    assert best.excluded_count == 1
    found = {one.name: one for one in rivals(best)}
    assert "linux-kmalloc" not in found  # it has no class for 60000
    table = px.preset("jemalloc")
    part = PROGRAMS[1].below(65536)
    assert found["jemalloc"].wastage_bytes == px.wastage(table, part).wastage_bytes
    assert found["jemalloc"].classes == 45
    assert [one.wastage_bytes for one in rivals(best)] == sorted(
        one.wastage_bytes for one in rivals(best)
    )


def test_no_rival_of_fewer_classes_wastes_less():
    profile = px.load_shipped("python3").profile()
    best = px.fit(profile, 64, align_bytes=8)
    for one in rivals(best, ["jemalloc", "gperftools", "google-tcmalloc", "go", "mimalloc"]):
        if one.classes <= 64:
            assert one.wastage_bytes >= best.wastage_bytes


# --- pictures


@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure(figsize=(8, 5)).add_subplot()


def test_picture_of_a_fit(ax, tmp_path):
    from pyallocx._sizeplot import plot_fit

    best = px.fit(PROGRAMS, 4)
    curve = best.curve(64)
    plot_fit(best, curve, rivals(best), ax=ax, path=tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10000
    line, points, mark = ax.lines[-3:]
    assert line.get_xdata().tolist() == curve["classes"].tolist()
    assert max(points.get_xdata()) <= 512
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (4, best.wastage_bytes)
    texts = [text.get_text() for text in ax.texts]
    assert any(text.startswith("4: ") for text in texts)
    assert any("jemalloc" in text for text in texts)


@pytest.mark.parametrize(
    "profile", [{16: 1}, {0: 1}, {16: 5, 1 << 40: 1}, dict.fromkeys(range(1, 400), 1)]
)
def test_odd_pictures(profile, ax, tmp_path):
    from pyallocx._sizeplot import plot_fit

    for k in (1, 3):
        best = px.fit(profile, k)
        plot_fit(best, best.curve(), rivals(best), path=tmp_path / "fit.png")


def test_picture_of_a_league(ax, tmp_path):
    result = px.league(PROGRAMS)
    result.plot(ax=ax, path=tmp_path / "league.png")
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert "linux-kmalloc (not all requests)  13" in labels
    assert "scudo-android64-14, 19  32" in labels
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["one", "two", "best of a program"]
    px.league({16: 1}, ["jemalloc"]).plot(path=tmp_path / "one.svg")
    px.league({16: 1}, ["scudo-trusty-14", "linux-kmalloc"]).plot(path=tmp_path / "two.png")
    px.league({7000: 1}, ["scudo-trusty-14"]).plot(path=tmp_path / "none.png")

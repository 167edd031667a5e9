import copy
import csv
import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import SweepResult
from pyallocx._files import write_atomically
from pyallocx.answer import explain, percent, tradeoffs
from pyallocx.render import render_html, render_text
from pyallocx.units import format_bytes, parse_bytes, parse_count


def table(xs, ys, status=None, **more):
    return SweepResult(
        {"keep_bytes": list(range(len(xs))), "waste_bytes": xs, "calls": ys, **more}
        | ({"status": status} if status else {}),
        grid_keys=["keep_bytes"], system="demo", x="waste_bytes", y="calls",
    )  # fmt: skip


def curve(rows=8, **metadata):
    keep = [0, *(16 << k for k in range(rows - 2)), math.inf]
    waste = [100 + 40 * i * i for i in range(rows)]
    calls = [4000 >> (2 * i) for i in range(rows)]
    columns = {
        "keep_bytes": keep,
        "waste_bytes_mean": waste,
        "list_frees": calls,
        "histogram": [{16: i + 1, 64: 9} for i in range(rows)],
        "status": ["ok"] * rows,
    }
    return SweepResult(
        columns, grid_keys=["keep_bytes"], system="demo", x="waste_bytes_mean", y="list_frees",
        metadata={
            "trace": {"name": "git.npz", "events": 12345},
            "landmarks": [({"keep_bytes": 64, "policy": "cut"}, "Firefox")],
            "fixed": {"policy": "cut"},
        } | metadata,
    )  # fmt: skip


# Access


def test_columns_have_the_narrowest_honest_type():
    res = table(
        [1, None, 3], [1, 2, 3], whole=[1, 2, 2**62], huge=[1, 2, 2**63], inf=[0, 1, math.inf],
        text=["a", "b", "c"], flag=[True, False, True], nothing=[None] * 3, hist=[{1: 2}] * 3,
    )  # fmt: skip
    kinds = {name: res[name].dtype.kind for name in res.columns}
    assert kinds == {
        "keep_bytes": "i", "waste_bytes": "f", "calls": "i", "whole": "i", "huge": "f",
        "inf": "f", "text": "O", "flag": "b", "nothing": "f", "hist": "O",
    }  # fmt: skip
    assert np.isnan(res["waste_bytes"][1])
    assert res[2]["huge"] == 2**63, "a row is exact"
    assert type(res[0]["inf"]) is int, "a whole number stays whole beside infinity"


def test_numpy_cells_become_python():
    res = table(
        np.array([1.5, 2.0]), np.array([1, 2], dtype=np.uint64), hist=[{np.int64(1): 2}, {}]
    )
    row = res[0]
    assert type(row["waste_bytes"]) is float
    assert type(row["calls"]) is int
    assert [type(key) for key in row["hist"]] == [int]
    assert res["calls"].dtype == np.int64


def test_rows_slices_and_masks():
    res = curve()
    assert len(res) == len(res.rows()) == len(list(res)) == 8
    assert res[-1]["keep_bytes"] == math.inf
    assert res[2:4]["keep_bytes"].tolist() == [16 << 1, 16 << 2]
    assert len(res[res["list_frees"] > 100]) == 3
    assert res[[1, -1]]["list_frees"].tolist() == [1000, 0]
    assert len(res[[]]) == 0
    assert res[:0].columns == res.columns
    assert isinstance(repr(res[:0]), str)
    assert res[:0]._repr_html_()
    assert res[2:4].metadata == res.metadata


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("nope", KeyError), (8, IndexError), (-9, IndexError), ([True], IndexError),
        ([0.5], TypeError), ([99], IndexError), (None, TypeError), (True, TypeError),
    ],
)  # fmt: skip
def test_bad_keys(key, error):
    with pytest.raises(error):
        curve()[key]


def test_a_table_must_fit_together():
    with pytest.raises(ValueError, match="length"):
        SweepResult({"a": [1], "b": [1, 2]}, grid_keys=["a"], system="s", x="a", y="b")
    with pytest.raises(ValueError, match="no column 'z'"):
        SweepResult({"a": [1]}, grid_keys=["a"], system="s", x="a", y="z")


def test_nothing_changes_a_table():
    given_hist = [{1: 1}, {1: 2}]
    given_calls = np.array([5, 6])
    meta = {"trace": {"name": "a", "events": 1}}
    res = SweepResult(
        {"a": [0, 1], "calls": given_calls, "hist": given_hist}, grid_keys=["a"], system="s",
        x="a", y="calls", metadata=meta,
    )  # fmt: skip
    before = res.to_json()
    given_hist[0][1] = 9
    given_calls[0] = 9
    meta["trace"]["name"] = "b"
    res.rows()[0]["hist"][1] = 9
    res["hist"][0][1] = 9
    res.metadata["trace"]["name"] = "b"
    with pytest.raises(ValueError):
        res["calls"][0] = 9
    column = res["calls"]
    column.flags.writeable = True
    column[0] = 9
    for change in (
        lambda: setattr(res, "x", "a"),
        lambda: setattr(res, "_columns", {}),
        lambda: setattr(res, "new", 1),
        lambda: delattr(res, "_columns"),
    ):
        with pytest.raises(AttributeError):
            change()
    assert res.to_json() == before
    assert res.metadata["trace"]["name"] == "a"


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_copies(clone):
    res = curve()
    assert clone(res).to_json() == res.to_json()
    assert clone(res).metadata == res.metadata


# Choosing

numbers = st.integers(0, 6) | st.just(math.nan) | st.just(math.inf) | st.none()
points = st.lists(st.tuples(numbers, numbers, st.sampled_from(["ok", "ok", "error: x"])))


def beats(a, b):
    return a[0] <= b[0] and a[1] <= b[1] and a != b


@given(points)
def test_pareto_keeps_exactly_what_nothing_beats(cells):
    res = table(*zip(*cells, strict=True)) if cells else table([], [])
    if cells:
        xs, ys, status = zip(*cells, strict=True)
        res = table(xs, ys, list(status))
    usable = [
        i for i, (x, y, ok) in enumerate(cells)
        if ok == "ok" and not any(v is None or math.isnan(v) for v in (x, y))
    ]  # fmt: skip
    front = res.pareto()
    kept = front["keep_bytes"].astype(int).tolist()
    assert len(set(kept)) == len(kept)
    assert set(kept) <= set(usable)
    at = {i: cells[i][:2] for i in usable}
    assert not any(beats(at[i], at[j]) for i in kept for j in kept)
    for dropped in set(usable) - set(kept):
        assert any(beats(at[i], at[dropped]) for i in kept)
    assert front["waste_bytes"].tolist() == sorted(front["waste_bytes"].tolist())


def test_equal_points_are_all_kept():
    res = table([1, 2, 1, 2], [5, 3, 5, 4])
    assert res.pareto()["keep_bytes"].tolist() == [0, 2, 1]


def test_pareto_of_other_columns_and_bad_ones():
    res = table([1, 2], [5, 3], other=[2, 1], text=["a", "b"])
    assert res.pareto("other", "calls")["keep_bytes"].tolist() == [1]
    with pytest.raises(KeyError, match="nope"):
        res.pareto("nope")
    with pytest.raises(TypeError, match="'text' does not hold numbers"):
        res.pareto("text")


def test_knee_is_the_point_furthest_below_the_chord():
    # Distances from the chord (0, 10)-(10, 0) are (10 - x - y) / sqrt(2).
    res = table([0, 1, 3, 10, 2], [10, 6, 1, 0, 9])
    assert res.knee()["keep_bytes"] == 2


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12),
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 20),
)  # fmt: skip
def test_knee_is_on_the_front_and_ignores_units(cells, across, up, shift):
    xs, ys = zip(*cells, strict=True)
    res = table(xs, ys)
    knee = res.knee()
    assert knee["keep_bytes"] in res.pareto()["keep_bytes"]
    moved = table([x * across + shift for x in xs], [y * up for y in ys])
    assert moved.knee()["keep_bytes"] == knee["keep_bytes"]


def test_knee_of_short_fronts():
    assert table([3], [4]).knee()["keep_bytes"] == 0
    assert table([3, 1], [4, 9]).knee()["keep_bytes"] == 1, "a tie goes to the smaller x"
    assert table([2, 2], [7, 7]).knee()["keep_bytes"] == 0


def test_knee_with_logarithms():
    res = table([1, 10, 100], [1000, 10, 1])
    assert res.knee()["keep_bytes"] == 1
    assert table([0, 9, 99], [999, 500, 0]).knee(log=True)["keep_bytes"] == 0
    with pytest.raises(ValueError, match="logarithm"):
        table([-1, 0], [2, 1]).knee(log=True)


def test_no_knee_without_numbers():
    for res in (table([], []), table([math.inf], [1]), table([1], [1], ["error: x"])):
        with pytest.raises(ValueError, match="no measured row"):
            res.knee()


# Leaving


def test_json_is_strict_and_complete():
    res = table([0, math.inf, math.nan], [None, 2, 3], hist=[{16: 1, math.inf: 2}, None, {}])
    rows = json.loads(res.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert rows == res.to_dicts()
    assert rows[1]["waste_bytes"] == "inf"
    assert rows[2]["waste_bytes"] is None
    assert rows[0]["calls"] is None
    assert rows[0]["hist"] == {"16": 1, "inf": 2}
    assert json.loads(res[:0].to_json()) == []


def test_csv(tmp_path):
    path = tmp_path / "a.csv"
    res = curve()
    res.to_csv(path)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert tuple(rows[0]) == res.columns
    assert rows[-1]["keep_bytes"] == "inf"
    assert json.loads(rows[0]["histogram"]) == {"16": 1, "64": 9}
    assert [int(row["list_frees"]) for row in rows] == res["list_frees"].tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def fail(stream):
        stream.write(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    link = tmp_path / "link"
    link.symlink_to(path)
    write_atomically(link, lambda stream: stream.write(b"new"))
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "link"]
    write_atomically("/dev/null", lambda stream: stream.write(b"gone"))


def test_pandas():
    pd = pytest.importorskip("pandas")
    frame = curve().to_pandas()
    assert list(frame.columns) == list(curve().columns)
    assert frame["list_frees"].dtype == np.int64
    assert isinstance(frame, pd.DataFrame)
    frame.loc[0, "list_frees"] = 5


def test_pandas_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pyallocx\[pandas\]"):
        curve().to_pandas()


# Looking


@pytest.mark.parametrize("width", [40, 60, 80, 120, 400])
def test_text_fits_and_says_what_is_missing(width):
    res = curve()
    text = render_text(res, width)
    text.encode("ascii")
    lines = text.splitlines()
    assert "12,345 events" in lines[0]
    assert max(map(len, lines[1:])) <= width
    assert sum("<- knee" in line for line in lines) == 1
    assert sum("<- Firefox" in line for line in lines) == 1
    assert "not shown: " in text
    assert "histogram" in lines[-1]


def test_long_tables_are_cut_but_keep_the_marks():
    rows = 500
    res = table([i if i == 250 else i + 1000 for i in range(rows)], [9] * rows)
    text = render_text(res, 100)
    assert "475 rows not shown" in text
    assert "<- best" in text
    assert len(text.splitlines()) < 40
    assert "475 rows not shown" in render_html(res)


def test_text_shows_failures_and_strange_names():
    res = table([1, None], [1, None], ["ok", "error: ValueError: caf\u00e9 " + "x" * 200])
    text = render_text(res, 200)
    assert "1 failed" in text
    assert "caf\\xe9" in text
    text.encode("ascii")


def test_html_escapes_and_marks():
    res = curve(trace={"name": "<script>", "events": 5})
    html = res._repr_html_()
    assert "<script>" not in html
    assert html.count("◀ knee") == 1
    assert "◀ Firefox" in html
    assert "<small" in html
    assert "4,000" in html
    assert "∞" in html
    assert "title=" in html
    failed = table([None], [None], ["error: <b>"])
    assert "error: &lt;b&gt;" in failed._repr_html_()


def test_explanations_compare_with_the_most_churn():
    res = curve()
    lines = explain(res)
    assert len(lines) == 2
    assert "Firefox" in lines[1]
    assert "(4,000 -> 62)" in lines[1]
    knee = tradeoffs(res)[0]
    assert knee.name == "knee"
    assert res[knee.index] == res.knee()
    assert knee.saved == pytest.approx(1 - res.knee()["list_frees"] / 4000)
    assert explain(res[:0]) == []
    assert explain(res[:1]) == ["No measured cell saves anything over another."]


def test_a_front_too_short_to_bend_has_no_knee_to_mark():
    two = table([1, 2], [5, 3])
    assert "knee" not in repr(two)
    assert explain(two)[0].startswith("keep_bytes 1 B (least churn): 40 % fewer calls")
    assert "<- best" in repr(table([1, 2], [3, 5]))
    assert "<-" not in repr(table([1], [3]))
    assert "<-" not in repr(table([math.inf, 1], [3, math.inf]))
    assert table([1, math.inf], [5, 0]).knee()["keep_bytes"] == 0


def test_a_landmark_needs_its_own_policy():
    assert "Firefox" not in repr(curve(fixed={"policy": "age"}))


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0 %"), (1, "100 %"), (0.5, "50 %"), (0.998, "99.8 %"), (0.9996, "99.96 %"),
     (0.9999999, "over 99.99 %"), (0.000001, "under 0.01 %")],
)  # fmt: skip
def test_percent_never_rounds_to_all_or_nothing(fraction, text):
    assert percent(fraction) == text


# Units


@given(st.integers(0, 2**70))
def test_whole_numbers_are_exact(value):
    assert parse_bytes(str(value)) == value
    assert parse_bytes(f"{value}KiB") == value * 1024
    assert parse_count(f"{value}k") == value * 1000


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "1KB", "1.5", "nan", "--1", "1 2", "0x10", "_", ".", "1_000", "1e-3", "1.2345e3",
        "1e999", "\u0661\u0662", "\uff11", "\u00b2",
    ],
)  # fmt: skip
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="not a"):
        parse_bytes(text)


def test_sizes():
    assert [parse_bytes(t) for t in ("2k", "2KiB", "1.5M", "INF", "-3", "8 B")] == [
        2048, 2048, 1572864, math.inf, -3, 8,
    ]  # fmt: skip
    assert [parse_count(t) for t in ("1e3", "1.234e3", "9007199254740993.0", "1e22")] == [
        1000, 1234, 2**53 + 1, 10**22,
    ]  # fmt: skip
    assert [format_bytes(v) for v in (0, 1023, 1024, 1536, 1023.9 * 1024, math.inf, -2048)] == [
        "0 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "inf", "-2 KiB",
    ]  # fmt: skip


def test_no_plot_library_is_imported_by_the_table():
    code = "import sys, pyallocx; print([m for m in ('matplotlib', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_select_keeps_what_a_sweep_needs():
    res = px.sweep(px.Arena, px.synthesize(2000, seed=1))
    few = res.select("list_frees", "pops", "list_frees")
    wanted = ("retain_bytes", "list_frees", "pops", "list_calls", "overhead_bytes_mean", "status")
    assert few.columns == wanted
    assert few.knee()["retain_bytes"] == res.knee()["retain_bytes"]
    assert few.select().columns == (*wanted[:1], *wanted[3:])
    with pytest.raises(KeyError, match="no column 'nothing'; there are retain_bytes"):
        res.select("nothing")


def test_the_same_sweep_looks_the_same():
    trace = px.synthesize(2000, seed=1)
    one, two = px.sweep(px.Arena, trace), px.sweep(px.Arena, trace)
    assert one.metadata["seconds"] != two.metadata["seconds"]
    assert repr(one) == repr(two)
    assert one._repr_html_() == two._repr_html_()


def test_a_long_status_leaves_room_for_the_columns():
    long = "error: ValueError: " + "no room for what was asked, " * 8
    res = SweepResult(
        {"keep_bytes": [0, 64], "waste_bytes": [1, None], "calls": [5, None]}
        | {"status": ["ok", long]},
        grid_keys=["keep_bytes"], system="demo", x="waste_bytes", y="calls",
    )  # fmt: skip
    text = render_text(res, 60)
    assert {"waste_", "bytes", "calls", "status"} <= set(text.split())
    assert "error: ValueError: no roo..." in text
    assert "1 row failed, keep_bytes 64 B: " + long.strip() in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 60
    many = SweepResult(
        {"keep_bytes": range(9), "calls": [None] * 9, "status": [f"{long} {i}" for i in range(9)]},
        grid_keys=["keep_bytes"], system="demo", x="calls", y="calls",
    )  # fmt: skip
    assert "4 other failures" in render_text(many)


def test_the_text_says_what_the_knee_is_of():
    assert "knee: of list_frees over waste_bytes_mean, both on linear scales" in repr(curve())
    assert "linear" not in repr(curve(2))


def test_cells_are_compared_within_their_surroundings():
    res = SweepResult(
        {
            "chunk_bytes": [4096, 4096, 4096, 8192, 8192, 8192],
            "keep_bytes": [0, 64, 2048] * 2,
            "waste_bytes": [1, 2, 90, 10, 20, 900],
            "calls": [100, 10, 9, 1000, 100, 90],
        },
        grid_keys=["chunk_bytes", "keep_bytes"], system="demo", x="waste_bytes", y="calls",
        metadata={
            "context": ["chunk_bytes", "pages"],
            "landmarks": [({"chunk_bytes": 8192, "keep_bytes": 2048}, "known")],
        },
    )  # fmt: skip
    assert [(t.index, t.base, t.saved) for t in tradeoffs(res)] == [(1, 0, 0.9), (5, 3, 0.91)]
    assert "than chunk_bytes 4 KiB, keep_bytes 0 B (100 -> 10)" in explain(res)[0]
    assert "than chunk_bytes 8 KiB, keep_bytes 0 B (1,000 -> 90)" in explain(res)[1]
    # Where nothing is said of surroundings, all cells are comparable.
    plain = SweepResult(
        {name: res[name] for name in res.columns},
        grid_keys=res.grid_keys, system="demo", x=res.x, y=res.y,
    )  # fmt: skip
    assert [trade.base for trade in tradeoffs(plain)] == [3]


def test_an_axis_that_the_trace_does_not_tell():
    res = table([1, 2], [5, 3], mean_ns=[math.nan, None])
    assert explain(res, x="mean_ns") == ["No cell has a number in mean_ns: the trace has no times."]
    assert tradeoffs(res, x="mean_ns") == []

"""Timelines, lifetimes and sizes, against sums made the slow way."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_cases import columns_of, events, summarise, traces

import pyallocx as px
from pyallocx._columntable import dense
from pyallocx._core import TraceTimeline

COUNTS = {"allocs": px.OP_ALLOC, "frees": px.OP_FREE, "reallocs": px.OP_REALLOC}
ASKING = (px.OP_ALLOC, px.OP_REALLOC)


def states(made):
    """Objects and bytes that live after each event, by summing up all that live."""
    live, found = {}, []
    for event in made:
        if event["op"] == px.OP_FREE:
            del live[event["object"]]
        elif event["op"] == px.OP_DESTROY:
            live = {o: e for o, e in live.items() if e["arena"] != event["arena"]}
        else:
            live[event["object"]] = event
        found.append((len(live), sum(e["size_bytes"] for e in live.values())))
    return found


def slow_rows(made, edges):
    found = states(made)
    rows = []
    for begin, end in itertools.pairwise(edges):
        part = made[begin:end]
        row = {n: sum(e["op"] == op for e in part) for n, op in COUNTS.items()}
        row["allocated_bytes"] = sum(e["size_bytes"] for e in part if e["op"] in ASKING)
        now = found[end - 1] if end else (0, 0)
        row["live_objects"], row["live_bytes"] = now
        inside = found[begin:end] or [now]
        for at, name in enumerate(("live_objects", "live_bytes")):
            row[f"least_{name}"] = min(state[at] for state in inside)
            row[f"most_{name}"] = max(state[at] for state in inside)
        rows.append(row)
    return rows


def trace_of(made, arenas, *more):
    return px.Trace(**columns_of(made, *more, *(["arena"] if arenas else [])))


@given(st.booleans().flatmap(lambda a: st.tuples(st.just(a), events(arenas=a))), st.integers(1, 60))
def test_a_timeline_by_event(drawn, points):
    arenas, made = drawn
    line = trace_of(made, arenas).timeline(points)
    rows = min(points, len(made))
    edges = [len(made) * i // max(rows, 1) for i in range(rows + 1)]
    assert line["event"].tolist() == edges[1:]
    for row, wanted in enumerate(slow_rows(made, edges)):
        assert {name: int(line[name][row]) for name in wanted} == wanted
    assert ("destroys" in line) == arenas
    summary = trace_of(made, arenas).summary()
    assert line.metadata["peak_live_bytes"] == summary["peak_live_bytes"]
    assert line.metadata["peak_event"] == summary["peak_event"]


@given(events(max_events=30), st.integers(1, 80))
def test_a_timeline_by_time(made, points):
    trace = trace_of(made, False, "time_ns")
    line = trace.timeline(points, by="time")
    if not made:
        assert len(line) == 0
        return
    times = [event["time_ns"] for event in made]
    rows = min(points, max(times[-1] - times[0], 1))
    marks = [times[0] + (times[-1] - times[0]) * i // rows for i in range(rows + 1)]
    assert line["time_ns"].tolist() == marks[1:]
    edges = [0, *(sum(t <= mark for t in times) for mark in marks[1:])]
    assert line["event"].tolist() == edges[1:]
    for row, wanted in enumerate(slow_rows(made, edges)):
        assert {name: int(line[name][row]) for name in wanted} == wanted
        seconds = (marks[row + 1] - marks[row]) / 1e9
        rate = line["allocs_per_second"][row]
        assert rate == wanted["allocs"] / seconds if seconds else math.isnan(rate)


def test_rates_by_event():
    trace = px.Trace([0, 0, 1, 0], [0, 1, 0, 2], [5, 6, 0, 7], time_ns=[100, 100, 300, 1300])
    line = trace.timeline(4)
    assert line["time_ns"].tolist() == [100, 100, 300, 1300]
    assert np.isnan(line["allocs_per_second"][:2]).all()
    assert line["frees_per_second"][2] == 1 / 200e-9
    assert line["allocated_bytes_per_second"][3] == 7 / 1e-6


@given(st.booleans().flatmap(lambda a: st.tuples(st.just(a), events(arenas=a))))
def test_lifetimes(drawn):
    arenas, made = drawn
    lives = trace_of(made, arenas, "time_ns").lifetimes()
    births, deaths = {}, {}
    for at, event in enumerate(made):
        if event["op"] == px.OP_ALLOC:
            births[event["object"]] = at
        elif event["op"] == px.OP_FREE:
            deaths[event["object"]] = at
        elif event["op"] == px.OP_DESTROY:
            for o, born in births.items():
                if made[born]["arena"] == event["arena"]:
                    deaths.setdefault(o, at)
    assert len(lives) == len(births)
    for o, born in births.items():
        died = deaths.get(o)
        assert lives["birth_event"][o] == born
        assert lives["death_event"][o] == (-1 if died is None else died)
        assert lives["censored"][o] == (died is None)
        assert lives["size_bytes"][o] == made[born]["size_bytes"]
        end = len(made) if died is None else died
        assert lives["lifetime_events"][o] == end - born
        after = made[born + 1 : end + 1]
        asked = sum(e["size_bytes"] for e in after if e["op"] in ASKING)
        assert lives["lifetime_bytes"][o] == asked
        until = made[min(end, len(made) - 1)]
        assert lives["lifetime_ns"][o] == until["time_ns"] - made[born]["time_ns"]


def slow_survival(times, censored, weights, at):
    """The product over all times up to `at`, each factor from its definition."""
    left = 1.0
    for time in sorted({t for t, c in zip(times, censored, strict=True) if not c and t <= at}):
        risk = sum(w for t, w in zip(times, weights, strict=True) if t >= time)
        died = sum(
            w for t, c, w in zip(times, censored, weights, strict=True) if t == time and not c
        )
        left *= 1 - died / risk if risk else 1.0
    return left


@given(traces(), st.sampled_from(["objects", "bytes"]), st.sampled_from(["bytes", "events"]))
def test_survival_is_the_product_limit_estimator(trace, weight, unit):
    lives = trace.lifetimes()
    times, left = lives.survival(unit, weight)
    values = lives[f"lifetime_{unit}"].tolist()
    weights = [1] * len(lives) if weight == "objects" else lives["size_bytes"].tolist()
    assert (np.diff(times.astype(float)) > 0).all()
    assert (np.diff(left) <= 0).all()
    for at in values:
        share = lives.died_within(at, unit, weight)
        wanted = 1 - slow_survival(values, lives["censored"].tolist(), weights, at)
        assert share == pytest.approx(wanted, abs=1e-9)
        assert 0 <= share <= 1


def test_a_survival_by_hand():
    # Objects of 10 bytes; lifetimes in events 1 and 3, one that lives on after 2 and one after 1.
    trace = px.Trace([0, 1, 0, 0, 0, 1], [0, 0, 1, 2, 3, 1], [10, 0, 10, 10, 10, 0])
    lives = trace.lifetimes()
    assert lives["lifetime_events"].tolist() == [1, 3, 3, 2]
    times, left = lives.survival("events")
    # At 1 one of four dies; at 3 one of the two that were seen so long.
    assert times.tolist() == [1, 3]
    assert left.tolist() == [0.75, 0.375]
    assert lives.quantile(0.25, "events") == 1
    assert lives.quantile(0.5, "events") == 3
    assert lives.quantile(0.7, "events") is None
    assert lives.died_within(2, "events") == 0.25
    assert lives.died_within(0, "events") == 0


def test_all_that_die_die():
    trace = px.synthesize(20_000, seed=1, lifetimes="stack")
    lives = trace.lifetimes()
    ends = np.flatnonzero(lives["censored"])
    assert len(ends) < 64
    keep = ~np.isin(trace.object, ends)
    whole = px.minimize(trace, lambda t: True)
    assert len(whole) == 0
    closed = trace.lifetimes().survival("bytes", "bytes")
    assert closed[1][-1] >= 0
    names = np.unique(trace.object[keep], return_inverse=True)[1]
    trace = px.Trace(trace.op[keep], names, trace.size_bytes[keep])
    for weight in ("objects", "bytes"):
        assert trace.lifetimes().survival("bytes", weight)[1][-1] == 0
        assert trace.lifetimes().died_within(math.inf, weight=weight) == 1
    summary = trace.lifetimes().summary()
    assert summary["censored_objects"] == summary["censored_bytes"] == 0
    json.dumps(summary, allow_nan=False)


@given(traces())
def test_sizes(trace):
    table = trace.sizes()
    asked = [s for o, s in zip(trace.op, trace.size_bytes.tolist(), strict=True) if o in ASKING]
    assert table["size_bytes"].tolist() == sorted(set(asked))
    assert (table["allocs"] + table["reallocs"]).tolist() == [
        asked.count(s) for s in table["size_bytes"].tolist()
    ]
    summary = trace.summary()
    assert table["allocs"].sum() == summary["allocs"]
    assert table["allocated_bytes"].astype(object).sum() == summary["allocated_bytes"]
    for when, live in (("peak", "peak_live"), ("end", "live")):
        sums = (table[f"{when}_objects"] * table["size_bytes"].astype(object)).sum()
        assert sums == summary[f"{live}_bytes{'' if when == 'peak' else '_end'}"]


@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 5)), st.sampled_from([1, 2**20]))
def test_dense_labels(labels, most):
    column = np.array([label % most for label in labels], dtype=np.uint32)
    used, index = dense(column)
    assert used.tolist() == sorted(set(column.tolist()))
    assert used[index].tolist() == column.tolist()
    wide = np.array(labels, dtype=np.uint32)
    assert dense(wide)[0][dense(wide)[1]].tolist() == labels


def test_tables_do_not_change():
    line = px.synthesize(1000, seed=1).timeline(10)
    with pytest.raises(AttributeError, match="does not change"):
        line.metadata = {}
    with pytest.raises(ValueError, match="read-only"):
        line["event"][0] = 1
    with pytest.raises(ValueError):
        line["event"].setflags(write=True)
    assert pickle.loads(pickle.dumps(line)) == line
    assert line != px.synthesize(1000, seed=2).timeline(10)
    with pytest.raises(KeyError, match="there are event, allocs"):
        line["nope"]
    assert "<table>" in line._repr_html_()
    assert "10 intervals" in line._repr_html_()
    assert line.to_pandas()["event"].tolist() == line["event"].tolist()
    assert json.loads(json.dumps(line.to_dict()))["event"] == line["event"].tolist()


def test_wrong_arguments():
    trace = px.synthesize(100, seed=1)
    for points in (0, -1, 2**24 + 1):
        with pytest.raises(ValueError, match="points"):
            trace.timeline(points)
    with pytest.raises(ValueError, match="no times"):
        trace.timeline(by="time")
    with pytest.raises(ValueError, match="'event' and 'time'"):
        trace.timeline(by="thread")
    lives = trace.lifetimes()
    with pytest.raises(ValueError, match="'bytes', 'events'"):
        lives.survival("ns")
    with pytest.raises(ValueError, match="'objects' and 'bytes'"):
        lives.survival("bytes", "size")
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        lives.quantile(1.5)
    for wrong in (None, "half"):
        with pytest.raises(TypeError, match="share must be a number"):
            lives.quantile(wrong)
        with pytest.raises(TypeError, match="lifetime must be a number"):
            lives.died_within(wrong)
    for function in (px.timeline, px.lifetimes, px.sizes, px.plot_trace):
        with pytest.raises(TypeError, match="trace must be a Trace, not NoneType"):
            function(None)
    huge = px.Trace([0, 0], [0, 1], [2**64 - 1, 2**64 - 1])
    for method in (huge.timeline, huge.lifetimes, huge.sizes):
        with pytest.raises(OverflowError, match="64 bits"):
            method()
    assert px.Trace([0], [0], [2**64 - 1]).timeline()["live_bytes"].tolist() == [2**64 - 1]


def test_nothing_at_all():
    empty = px.Trace([], [], [])
    assert len(empty.timeline()) == len(empty.lifetimes()) == len(empty.sizes()) == 0
    assert empty.timeline().metadata["peak_event"] is None
    assert math.isnan(empty.lifetimes().died_within(5))
    assert empty.lifetimes().quantile(0.5) is None
    json.dumps(empty.lifetimes().summary(), allow_nan=False)
    for draw in (empty.timeline().plot, empty.lifetimes().plot, lambda: px.plot_trace(empty)):
        with pytest.raises(ValueError, match="nothing"):
            draw()


def test_the_walker_trusts_nothing():
    trace = px.synthesize(100, seed=1, arenas=px.synth.Arenas(3, mean_events=30))
    columns = trace._walk_columns()

    def made(*edges):
        return TraceTimeline(np.array(edges, dtype=np.uint64), *columns)

    for edges in ((), (0,), (1, 100), (0, 99), (0, 60, 50, 100), (0, 101), (0, 101, 100)):
        with pytest.raises(ValueError, match=r"edge|rows"):
            made(*edges)
    with pytest.raises(TypeError):
        TraceTimeline(np.array([0.0, 100.0]), *columns)
    walker = made(0, 0, 50, 50, 100, 100)
    assert walker.step(10) == 10
    assert walker.step(1000) == 100
    rows = np.frombuffer(walker.rows(), dtype=np.uint64).reshape(-1, 12)
    assert rows[:, :4].sum() == 100
    assert rows[0].tolist()[:11] == [0] * 11
    assert rows[4, 6] == rows[3, 6]
    # A column that changed after the trace was checked.
    object_ = trace.object.copy()
    object_[np.flatnonzero(trace.op == px.OP_FREE)[0]] = 10**6
    bad = TraceTimeline(np.array([0, 100], dtype=np.uint64), columns[0], object_, *columns[2:])
    with pytest.raises(px.TraceError, match="never allocated"):
        bad.step(100)
    with pytest.raises(Exception, match="refused"):
        bad.step(100)


@pytest.mark.parametrize("name", ["python3", "sqlite3"])
def test_shipped_traces(name):
    trace = px.load_shipped(name)
    summary = trace.summary()
    for points in (1, 7, 1000):
        line = trace.timeline(points)
        assert int(line["most_live_bytes"].max()) == summary["peak_live_bytes"]
        assert int(line["most_live_objects"].max()) == summary["most_live_objects"]
        assert line["allocs"].sum() == summary["allocs"]
        assert int(line["live_bytes"][-1]) == summary["live_bytes_end"]
    lives = trace.lifetimes()
    assert np.count_nonzero(lives["censored"]) == summary["live_objects_end"]
    # The weak generational hypothesis: most objects die young.
    assert lives.died_within(64 * 1024) > 0.5


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    trace = px.load_shipped("sqlite3").head(20_000)
    timed = px.Trace(trace.op, trace.object, trace.size_bytes, time_ns=np.arange(len(trace)) * 1000)
    for draw, name in (
        (trace.timeline().plot, "a.png"),
        (timed.timeline(100, by="time").plot, "b.svg"),
        (trace.lifetimes().plot, "c.png"),
        (lambda path: timed.lifetimes().plot("ns", path=path), "d.png"),
        (lambda path: px.plot_trace(timed, name="$x", path=path), "e.png"),
        (lambda path: px.plot_trace(trace, path=path), "f.png"),
        (lambda path: px.plot_trace(px.Trace([0], [0], [0]), path=path), "g.png"),
    ):
        draw(path=tmp_path / name)
        assert (tmp_path / name).stat().st_size > 3000


def labels_of(figure):
    renderer = figure.canvas.get_renderer()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            shown = [t for t in axis.get_ticklabels() if t.get_text()]
            low, high = sorted(axis.get_view_interval())
            at = axis.get_ticklocs()
            yield [
                t.get_window_extent(renderer)
                for t, v in zip(axis.get_ticklabels(), at, strict=False)
                if t in shown and low <= v <= high and t.get_visible()
            ]


@pytest.mark.parametrize("name", ["python3", "sqlite3"])
def test_labels_of_the_picture_do_not_collide(name, tmp_path):
    pytest.importorskip("matplotlib")
    figure = px.plot_trace(px.load_shipped(name), name=name, path=tmp_path / "a.png")
    for boxes in labels_of(figure):
        for i, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_the_slow_sums_are_those_of_the_summary():
    trace = px.synthesize(300, seed=4, realloc_fraction=0.2)
    made = [
        {"op": int(o), "object": int(n), "size_bytes": int(s), "arena": 0, "thread": 0}
        for o, n, s in zip(trace.op, trace.object, trace.size_bytes, strict=True)
    ]
    assert max(b for _, b in states(made)) == summarise(made)["peak_live_bytes"]

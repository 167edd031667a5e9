import io
import itertools
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_fakes import Fake, FakeSystem, FakeTrace, SlowFake

import pyallocx as px
from pyallocx.answer import cell_name, find_cell
from pyallocx.sweep import Parameter, SweepSystem, expand_grid, resolve_system


class Inline(Executor):
    """The smallest executor anyone could write."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as exc:
            future.set_exception(exc)
        return future


def same(a, b):
    return a.to_dicts() == b.to_dicts() and a.columns == b.columns


def test_grid_comes_first_and_status_last():
    res = px.sweep(Fake, FakeTrace(), policy="cut", retain_bytes=[0, 64])
    assert res.columns == (
        "policy", "retain_bytes", "pops", "list_frees", "overhead_bytes", "histogram", "status",
    )  # fmt: skip
    assert res.grid_keys == ("policy", "retain_bytes")
    assert list(res["status"]) == ["ok", "ok"]
    assert (res.x, res.y, res.system) == ("overhead_bytes", "list_frees", "fake")
    meta = res.metadata
    assert meta["fixed"] == {"chunk_count": 4}
    assert meta["trace"] == {
        "name": "git.npz", "program": "git", "command": "git log", "events": 1000,
    }  # fmt: skip


retains = st.lists(st.integers(0, 5000) | st.just(math.inf), min_size=1, max_size=5)
counts = st.lists(st.integers(1, 9), min_size=1, max_size=3)
policies = st.lists(st.sampled_from(["cut", "keep"]), min_size=1, max_size=3)


@given(retains, counts, policies, st.permutations(["retain_bytes", "chunk_count", "policy"]))
def test_rows_are_the_product_in_order_with_duplicates(retain, count, policy, order):
    lists = {"retain_bytes": retain, "chunk_count": count, "policy": policy}
    grid = {key: lists[key] for key in order}
    res = px.sweep(Fake, FakeTrace(), executor=Inline(), **grid)
    assert res.columns[:3] == tuple(order)
    rows = [tuple(row[key] for key in order) for row in res]
    assert rows == list(itertools.product(*grid.values()))
    assert all(
        row["overhead_bytes"] == 100 + 3 * min(row["retain_bytes"], 8192) for row in res.rows()
    )


def test_no_keyword_is_the_default_grid():
    res = px.sweep(Fake, FakeTrace())
    assert [row["retain_bytes"] for row in res] == [0, 64, 2048, math.inf]


@pytest.mark.parametrize("values", [[0, 64], (0, 64), np.array([0, 64]), range(0, 128, 64)])
def test_what_sweeps(values):
    res = px.sweep(Fake, FakeTrace(), retain_bytes=values)
    assert res["retain_bytes"].tolist() == [0, 64]
    assert res["retain_bytes"].dtype == np.int64


@pytest.mark.parametrize("value", [64, np.int64(64), np.array(64), 64.0])
def test_what_is_fixed(value):
    assert px.sweep(Fake, FakeTrace(), retain_bytes=value).rows()[0]["retain_bytes"] == 64


@pytest.mark.parametrize(
    ("grid", "error", "words"),
    [
        ({"retain_byte": [1]}, TypeError, "'retain_byte'.*'retain_bytes'.*chunk_count"),
        ({"retain_bytes": []}, ValueError, "retain_bytes.*empty"),
        ({"retain_bytes": np.zeros((2, 2))}, ValueError, "2 dimensions"),
        ({"retain_bytes": {1, 2}}, TypeError, "set"),
        ({"retain_bytes": iter([1])}, TypeError, "list_iterator"),
        ({"retain_bytes": [0, -1]}, ValueError, "retain_bytes=-1: must be 0 to inf"),
        ({"retain_bytes": [math.nan]}, ValueError, "nan"),
        ({"retain_bytes": ["64"]}, TypeError, "'64'"),
        ({"policy": ["cut", "kep"]}, ValueError, "'kep'.*cut, keep.*did you mean 'keep'"),
    ],
)
def test_a_bad_grid_is_refused_before_anything_runs(grid, error, words):
    class Never(FakeSystem):
        def run(self, trace, cells, control):
            raise AssertionError("ran")

    with pytest.raises(error, match=words):
        px.sweep(Never(), FakeTrace(), **grid)


def test_what_cannot_be_swept():
    for thing in (int, 3, "arena", FakeSystem):
        with pytest.raises(TypeError, match="cannot be swept"):
            px.sweep(thing, FakeTrace())
    assert resolve_system(Fake) is Fake.__sweep__
    assert isinstance(Fake.__sweep__, SweepSystem)


def test_a_system_must_group_every_cell_once():
    class Loses(FakeSystem):
        def group(self, cells):
            return [[0]]

    with pytest.raises(RuntimeError, match="each of 4 cells once"):
        px.sweep(Loses(), FakeTrace())


@pytest.mark.parametrize("executor", [None, Inline()])
def test_failures_are_rows(executor):
    res = px.sweep(
        Fake, FakeTrace(), executor=executor, retain_bytes=[0, 64],
        policy=["cut", "bad_cell", "bad_group", "short", "no_column"],
    )  # fmt: skip
    status = {(row["policy"], row["retain_bytes"]): row["status"] for row in res}
    assert status == {
        ("cut", 0): "ok",
        ("cut", 64): "ok",
        ("bad_cell", 0): "error: MemoryError: no room",
        ("bad_cell", 64): "ok",
        ("bad_group", 0): "error: OverflowError: too much",
        ("bad_group", 64): "error: OverflowError: too much",
        ("short", 0): "error: RuntimeError: fake answered 1 of 2 cells",
        ("short", 64): "error: RuntimeError: fake answered 1 of 2 cells",
        ("no_column", 0): "error: fake answered without pops",
        ("no_column", 64): "ok",
    }
    assert len(res.ok) == 4
    assert np.isnan(res["pops"]).sum() == 6
    assert res[4]["histogram"] is None


def test_executors_agree():
    grid = {"retain_bytes": [0, 64, math.inf], "policy": ["keep", "cut", "bad_group"]}
    expected = px.sweep(Fake, FakeTrace(), executor=Inline(), **grid)
    assert same(px.sweep(Fake, FakeTrace(), **grid), expected)
    with ThreadPoolExecutor(2) as pool:
        assert same(px.sweep(Fake, FakeTrace(), executor=pool, **grid), expected)
        assert pool.submit(int).result() == 0, "a foreign executor stays open"
    with ProcessPoolExecutor(2) as pool:
        assert same(px.sweep(Fake, FakeTrace(), executor=pool, **grid), expected)


def test_an_argument_that_cannot_be_pickled_is_a_failed_row():
    class Local(FakeSystem):
        pass

    with ProcessPoolExecutor(1) as pool:
        res = px.sweep(Local(), FakeTrace(), executor=pool, retain_bytes=0)
    assert res[0]["status"].startswith("error: ")


def test_a_broken_pool_does_not_hang():
    with ProcessPoolExecutor(1) as pool:
        with pytest.raises(Exception, match=r"terminated|broken"):
            pool.submit(os._exit, 3).result()
        with pytest.raises(Exception, match=r"terminated|broken|usable"):
            px.sweep(Fake, FakeTrace(), executor=pool)


def test_control_counts_cancels_and_pickles_fresh():
    control = px.Control()
    threads = [
        threading.Thread(target=lambda: [control.advance(1) for _ in range(1000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert control.events == 4000
    control.check()
    control.cancel()
    assert control.cancelled
    with pytest.raises(px.SweepCancelled):
        control.check()
    assert not pickle.loads(pickle.dumps(control)).cancelled


def test_another_thread_can_cancel():
    control = px.Control()
    threading.Timer(0.2, control.cancel).start()
    started = time.monotonic()
    with pytest.raises(px.SweepCancelled):
        px.sweep(SlowFake, FakeTrace(), control=control)
    assert time.monotonic() - started < 10


def test_a_worker_thread_can_sweep():
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(px.sweep, Fake, FakeTrace()).result()) == 4


def test_no_bar_unless_it_is_a_terminal_or_asked_for(monkeypatch):
    quick = FakeSystem(seconds=0.3)
    for progress, system, shown in [
        (None, FakeSystem(seconds=1.4), False),
        (True, quick, False),
        (True, FakeSystem(seconds=1.4), True),
        (False, FakeSystem(seconds=1.4), False),
    ]:
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        # Two groups one after the other, so that there is something to show between.
        with ThreadPoolExecutor(1) as pool:
            px.sweep(
                system, FakeTrace(), executor=pool, progress=progress, retain_bytes=0,
                policy=["cut", "keep"],
            )  # fmt: skip
        assert ("events" in stream.getvalue()) is shown, (progress, system)


INTERRUPTED = """
import os, signal, sys, threading, time
import pyallocx as px
from sweep_fakes import FakeTrace, SlowFake

def interrupt():
    time.sleep(0.3)
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    px.sweep(SlowFake, FakeTrace(), policy=["cut", "keep", "bad_cell"])
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - sent)
for worker in threading.enumerate():
    if worker.name.startswith("pyallocx"):
        worker.join(10)
        assert not worker.is_alive()
"""


def test_ctrl_c_ends_within_a_second():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=25,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""
    words = done.stdout.split()
    assert words[0] == "interrupted"
    assert float(words[1]) < 1


def test_parameter_flag_and_validation():
    parameter = Parameter("retain_bytes", 0, int, "", check=FakeSystem.parameters[0].check)
    assert parameter.flag == "--retain-bytes"
    assert parameter.validate(np.float64(64.0)) == 64
    assert expand_grid(FakeSystem(), {"retain_bytes": 5}) == {"retain_bytes": [5]}


def test_several_grids_are_one_table():
    trace = px.synthesize(3000, seed=2, keys=20)
    grids = [
        {"policy": "release"},
        {"policy": "byte_cut", "retain_bytes": [0, 2048]},
        {"policy": "age", "idle_operations": [10, 1000]},
    ]
    res = px.sweep(px.Arena, trace, grids, chunk_bytes=4096)
    assert res.grid_keys == ("chunk_bytes", "policy", "retain_bytes", "idle_operations")
    assert [row["retain_bytes"] for row in res] == [None, 0, 2048, None, None]
    assert [row["idle_operations"] for row in res] == [None, None, None, 10, 1000]
    counters = res.columns[len(res.grid_keys) : -1]
    for row, alone in zip(
        res,
        [row for one in grids for row in px.sweep(px.Arena, trace, chunk_bytes=4096, **one)],
        strict=True,
    ):
        assert repr([row[c] for c in counters]) == repr([alone[c] for c in counters])
    firefox = {"policy": "byte_cut", "retain_bytes": 2048}
    assert find_cell(res, firefox) == 2
    assert find_cell(res[[0, 3, 4]], firefox) is None
    # A cell whose grid does not name a parameter ran with its default.
    by_default = px.sweep(px.Arena, trace, [{"policy": "byte_cut"}, *grids])
    assert find_cell(by_default, firefox) == 0
    assert cell_name(res, 3) == "policy age, idle_operations 10"
    assert cell_name(res, 0) == "policy release"
    # One grid in a list is that grid.
    one = px.sweep(px.Arena, trace, [{"retain_bytes": [0, 64]}])
    assert same(one, px.sweep(px.Arena, trace, retain_bytes=[0, 64]))


@pytest.mark.parametrize(
    ("grids", "error", "words"),
    [
        ([], ValueError, "empty list"),
        ([{}], ValueError, "empty dict"),
        ({"policy": "age"}, TypeError, "list of dicts, not a dict"),
        ("age", TypeError, "list of dicts"),
        (["age"], TypeError, "holds dicts, not a str"),
        ([{"polcy": "age"}], TypeError, "did you mean 'policy'"),
        ([{"policy": []}], ValueError, "policy: an empty list"),
        ([{1: 2}], TypeError, "a parameter has a name, 1 is none"),
    ],
)
def test_bad_grids_are_refused(grids, error, words):
    with pytest.raises(error, match=words):
        px.sweep(px.Arena, px.synthesize(10), grids)
    with pytest.raises(TypeError, match="policy is given for all grids and in one"):
        px.sweep(px.Arena, px.synthesize(10), [{"policy": "age"}], policy="release")


@pytest.mark.parametrize("thing", [None, [1], "trace.npz", {"op": []}])
def test_what_is_no_trace(thing):
    with pytest.raises(TypeError, match="arena replays a Trace, not a "):
        px.sweep(px.Arena, thing)
    with pytest.raises(TypeError, match="a Trace is replayed, not a "):
        px.replay_arena(thing)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"executor": 3}, r"executor has submit\(\)"),
        ({"control": "stop"}, "control is a Control, not a str"),
    ],
)
def test_other_arguments_of_a_wrong_type(more, words):
    with pytest.raises(TypeError, match=words):
        px.sweep(Fake, FakeTrace(), **more)


def test_a_trace_may_say_anything_of_itself():
    odd = {"program": ["git", {"a": 1}], "command": {"b": None}, "name": 3, "file": ""}
    res = px.sweep(Fake, FakeTrace(metadata=odd))
    assert res.metadata["trace"] == {
        "name": "trace", "program": '["git", {"a": 1}]', "command": '{"b": null}', "events": 1000,
    }  # fmt: skip
    assert repr(res)


FIREFOX = {
    "policy": "byte_cut", "retain_bytes": 2048, "chunk_bytes": 8192, "pointer_bytes": 8,
    "alignment_bytes": 8, "list_header_bytes": 8, "max_object_bytes": "auto", "arena_by": "auto",
    "large_capacity": 500,
}  # fmt: skip


@pytest.mark.parametrize("swept", [True, False])
@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("policy", "keep_all"), ("retain_bytes", 1024), ("chunk_bytes", 4096),
        ("pointer_bytes", 4), ("alignment_bytes", 16), ("list_header_bytes", 16),
        ("max_object_bytes", 100), ("arena_by", "thread"), ("large_capacity", 7),
    ],
)  # fmt: skip
def test_firefox_is_where_all_of_its_parameters_are(key, other, swept):
    trace = px.synthesize(500, seed=1)
    (mark,) = px.sweep(px.Arena, trace, **FIREFOX).metadata["landmarks"]
    assert mark == (FIREFOX, "Firefox")
    res = px.sweep(px.Arena, trace, **{key: [other, FIREFOX[key]] if swept else other})
    assert find_cell(res, FIREFOX) == (1 if swept else None)


def test_what_intrusive_holds_is_told():
    trace = px.synthesize(5000, seed=1, sizes=600)
    res = px.sweep(px.Arena, trace, policy=["release", "intrusive"])
    explainer = resolve_system(px.Arena).explain
    *_, held, advice = explainer(res)
    assert res[1]["leaked_bytes_end"] > 0
    assert held.startswith("policy intrusive at the end holds ")
    assert "in freed objects that it never reuses; policy release holds " in held
    assert "--x held_bytes_end" in advice
    # In a table of several grids, too, whose policies are named by some only.
    mixed = px.sweep(px.Arena, trace, [{"retain_bytes": [0, 16]}, {"policy": "intrusive"}])
    assert any("never reuses" in line for line in explainer(mixed))
    many = px.sweep(px.Arena, trace, policy="intrusive", recycle_below_bytes=[1, 2, 3, 4, 5, 6])
    assert any("2 more rows" in line for line in explainer(many))
    bypassing = px.sweep(px.Arena, trace, chunk_bytes=[64, 8192])
    assert any("do not serve the same requests" in line for line in explainer(bypassing))
    for other in (px.sweep(px.Arena, trace), res.select("pops")):
        assert not any("intrusive at the end" in line for line in explainer(other))


def test_max_object_bytes_is_auto_by_default():
    trace = px.synthesize(500, seed=1)
    res = px.sweep(px.Arena, trace, max_object_bytes=["auto", None, 8168, 8])
    assert [row["max_object_bytes"] for row in res] == ["auto", "auto", 8168, 8]
    assert res[0]["bypassed"] == res[1]["bypassed"] == res[2]["bypassed"] < res[3]["bypassed"]
    assert px.sweep(px.Arena, trace).metadata["fixed"]["max_object_bytes"] == "auto"
    with pytest.raises(TypeError, match="max_object_bytes='8'"):
        px.sweep(px.Arena, trace, max_object_bytes="8")


@pytest.mark.parametrize("call", [-1, 2**64, 10**30])
def test_fail_at_is_in_its_range(call):
    with pytest.raises(ValueError, match=f"fail_at={call}: .*allowed is 0 to 18446744073709551615"):
        px.replay_arena(px.synthesize(10), fail_at=call)
    with pytest.raises(TypeError, match="fail_at='1'"):
        px.replay_arena(px.synthesize(10), fail_at="1")


class Choosy(FakeSystem):
    """Refuses cells in which more is retained than the chunks are."""

    asked: list = []  # noqa: RUF012

    def check(self, cell):
        self.asked.append((cell["retain_bytes"], cell["chunk_count"]))
        if cell["retain_bytes"] > cell["chunk_count"]:
            raise ValueError(
                f"retain_bytes is {cell['retain_bytes']}, allowed is 0 to {cell['chunk_count']}"
            )


@pytest.mark.parametrize(
    ("grid", "named"),
    [
        ({"retain_bytes": 5}, 5),
        ({"retain_bytes": [1, 5]}, 5),
        ({"retain_bytes": [1, 5], "chunk_count": [2, 4]}, 5),
        ({"chunk_count": [4, 1], "retain_bytes": [2, 3]}, 2),
        ({"chunk_count": [4]}, 2048),
    ],
)
def test_values_that_no_cell_can_run_with_are_refused(grid, named):
    with pytest.raises(ValueError, match=f"retain_bytes is {named}, allowed is 0 to"):
        px.sweep(Choosy(), FakeTrace(), **grid)
    with pytest.raises(ValueError, match=f"retain_bytes is {named}, allowed is 0 to"):
        px.sweep(Choosy(), FakeTrace(), [{"retain_bytes": 1, "chunk_count": 1}, grid])


def test_combinations_that_cannot_run_are_no_error():
    system = Choosy()
    system.asked.clear()
    res = px.sweep(system, FakeTrace(), retain_bytes=[1, 2], chunk_count=[1, 2])
    assert len(res) == 4
    # One possible cell for each value is enough.
    assert len(system.asked) == 5


@pytest.mark.parametrize(
    ("system", "grid", "message"),
    [
        (px.CodeHeap, {"chunk_bytes": [4096, 5000]}, r"5000, allowed is 4096 .* in steps of 4096"),
        (px.CodeHeap, {"page_bytes": 65536, "chunk_bytes": 4096}, r"4096, allowed is 65536 to"),
        (px.CodeHeap, {"page_bytes": [4096, 131072]}, r"65536, .* in steps of 131072"),
        (px.CodeHeap, {"page_bytes": 5000}, "page_bytes=5000: 5000 is no power of two"),
        (px.CodeHeap, {"page_bytes": 0}, "page_bytes=0: 0 is out of range"),
        (px.CodeHeap, {"pointer_bytes": 5}, "pointer_bytes=5: 5 is not one of 4, 8"),
        (
            px.CodeHeap,
            {"policy": "scan", "min_payload_bytes": [8, 32]},
            r"jump_bytes \(below min_payload_bytes\) is 8, allowed is 0 to 7",
        ),
        (px.Arena, {"chunk_bytes": [16, 4096]}, "chunk_bytes is 16, allowed is 32 to"),
    ],
)
def test_systems_refuse_what_the_core_would(system, grid, message):
    with pytest.raises(ValueError, match=message):
        px.sweep(system, px.synthesize(10, seed=1), **grid)


def test_an_impossible_corner_of_a_grid_is_a_row():
    trace = px.synthesize_code(10)
    res = px.sweep(px.CodeHeap, trace, chunk_bytes=[4096, 65536], page_bytes=[4096, 65536])
    assert [row["status"] == "ok" for row in res] == [True, False, True, True]
    assert "chunk_bytes (a multiple of page_bytes) is 4096" in res[1]["status"]

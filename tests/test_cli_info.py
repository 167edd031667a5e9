"""What `pyallocx info` shows of a trace beside its summary."""

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_cases import traces

import pyallocx as px
from pyallocx import _infotables as tables
from pyallocx._termplot import area, bar, has_blocks
from pyallocx._tracewords import middle_cut
from pyallocx.cli import main


def info(capsys, *argv):
    code = main(["info", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def section(out, title):
    """Lines of a section, up to the next empty one."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    end = next((i for i in range(start, len(lines)) if not lines[i]), len(lines))
    return lines[start + 1 : end]


@pytest.fixture
def rich(tmp_path):
    """A trace file with everything that a trace can have."""
    n = 4000
    base = px.synthesize(n, seed=1, threads=3, realloc_fraction=0.1)
    owner = base.object.astype(int)
    call = np.choose(base.op, [1, 11, 3])
    trace = px.Trace(
        base.op, base.object, base.size_bytes, thread=base.thread, call=call, key=owner % 12,
        time_ns=np.arange(n) * 1000,
        metadata={"key_names": [f"e\x1bvil {k}" for k in range(12)], "program": "x"},
        asides={
            "failed": {"event": [5, 9], "thread": [0, 0], "size_bytes": [1, 2]},
            "usable_size": {"event": [7], "object": [0], "size_bytes": [24]},
        },
    )  # fmt: skip
    path = tmp_path / "rich.npz"
    trace.save(path)
    return str(path)


def test_a_person_sees_it_all(capsys, rich, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    code, out, err = info(capsys, rich)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 90
    trace = px.load(rich)
    picture = section(out, "live bytes over the run (4 ms, 4,000 events)")
    assert len(picture) == 8
    assert any("█" in line for line in picture)
    assert "events per second" in "\n".join(section(out, "time"))
    bins = section(out, "request sizes")
    assert sum(int(line.split("%")[0].split()[-2].replace(",", "")) for line in bins) == int(
        np.count_nonzero(trace.op != px.OP_FREE)
    )
    assert len(section(out, "most bytes in size")) == 8
    lives = section(out, "lifetimes")
    assert lives[0].split()[:3] == ["half", "die", "within"]
    assert f"{trace.lifetimes().died_within(1024):.1%}" in lives[2]
    threads = section(out, "thread ")
    assert sorted(line.split()[0] for line in threads) == ["0", "1", "2"]
    keys = section(out, "most bytes in key")
    assert all("e\\x1bvil" in line for line in keys[:8])
    assert keys[-1] == "  and 4 more"
    beside = section(out, "calls and what was beside")
    assert [line.split()[:2] for line in beside[:2]] == [["by", "malloc"], ["by", "realloc"]]
    assert beside[-2].split() == ["failed", "2", "calls", "that", "failed"]
    assert "usable_size" in beside[-1]


SITES = [
    "inflateInit2_+0x56 (libz.so.1.2.13)",
    "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_append("
    "char const*, unsigned long)+0x1f (libstdc++.so.6.0.30)",
    "git+0x289719",
]


@pytest.mark.parametrize("columns", [1, 40, 60, 61, 64, 65, 80, 100, 200])
def test_call_sites_are_read_in_any_terminal(capsys, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    n = 300
    path = tmp_path / "sites.npz"
    px.Trace(
        [0] * n, range(n), [16] * n, key=np.arange(n) % 10, time_ns=np.arange(n),
        metadata={
            "key_names": [SITES[k % 3] + "x" * (k // 3) for k in range(10)],
            "clock": {"kind": "tsc", "ns_per_tick": 0.385190568, "start_ns": 1796071759019948156},
            "command": ["a" * 300, "b c"],
            "nothing": "",
            "long " * 20: list(range(100)),
        },
    ).save(path)  # fmt: skip
    code, out, err = info(capsys, str(path))
    assert (code, err) == (0, "")
    long_key = "  " + "long " * 20
    shown = [line for line in out.splitlines() if not line.startswith(long_key)]
    assert max(map(len, shown)) <= max(columns, 60)
    assert "key_names              10 names (all of them: --json)" in out
    assert " ".join(out.split()).count("start_ns 1796071759019948156") == 1
    assert "[...]" not in out
    assert out.count("git+0x289719") == 2
    assert out.count("inflateInit2_+0x56 (libz.so.1.2.13)") == 3
    # Both ends of what is too long: the function, and where it is.
    keys = "\n".join(section(out, "most bytes in key"))
    assert keys.count("std::__cxx11::basic_string") == 3
    assert keys.count("libstdc++.so.6.0.30)") == 3
    assert (SITES[1] in keys) == (columns == 200)


def test_short_names_stand_beside_their_numbers(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "short.npz"
    px.Trace([0, 0], [0, 1], [16, 8], key=[1, 0], metadata={"key_names": ["n" * 20, "main"]}).save(
        path
    )
    keys = section(info(capsys, str(path))[1], "most bytes in key")
    assert [line.split()[-1] for line in keys] == ["main", "n" * 20]


@given(st.text(max_size=60), st.integers(0, 70))
def test_a_cut_in_the_middle(text, width):
    cut = middle_cut(text, width)
    assert len(cut) == min(width, len(text))
    if len(text) <= width:
        assert cut == text
    elif width >= 8:
        head, tail = cut[: (width - 2) // 2], cut[-((width - 3) // 2) :]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + 3 + len(tail) == width


def test_what_is_no_trace_is_told_shortly(capsys, tmp_path):
    path = tmp_path / "random"
    path.write_bytes(bytes(range(128, 250)))
    code, out, err = info(capsys, str(path))
    assert (code, out) == (1, "")
    where = err.index("this begins with b'\\x80\\x81")
    assert where < err.index("expected a trace or a profile") < err.index("`pyallocx formats`")
    assert len(err) - where < 320


def test_json_has_it_all(capsys, rich):
    code, out, _ = info(capsys, rich, "--json")
    answer = json.loads(out)
    trace = px.load(rich)
    assert code == 0
    assert answer["summary"] == trace.summary()
    assert answer["asides"] == {"failed": 2, "usable_size": 1}
    assert sum(answer["calls"].values()) == len(trace)
    assert max(answer["timeline"]["most_live_bytes"]) == trace.summary()["peak_live_bytes"]
    assert len(answer["timeline"]["event"]) == 200
    assert [one["unit"] for one in answer["lifetimes"]] == ["bytes", "events", "ns"]
    assert sum(row["requests"] for row in answer["size_bins"]) == sum(
        answer["sizes"]["allocs"] + answer["sizes"]["reallocs"]
    )
    assert {row["thread"] for row in answer["threads"]} == {0, 1, 2}
    assert answer["top_keys"][0]["name"] is not None
    assert answer["rates"]["allocs_per_second"] > 0


def test_ascii_where_blocks_cannot_be_written():
    def shown(encoding):
        env = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "70"}
        command = [sys.executable, "-m", "pyallocx", "info", "shipped:sqlite3"]
        return subprocess.run(command, env=env, capture_output=True, check=True).stdout

    plain, blocks = shown("ascii"), shown("utf-8").decode()
    assert plain.isascii()
    assert b"\\u" not in plain
    assert b"####" in plain
    assert "████" in blocks
    assert len(plain.splitlines()) == len(blocks.splitlines())


def test_a_picture(capsys, tmp_path, rich):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "a.png"
    code, out, err = info(capsys, rich, "--plot", str(picture))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"picture: {picture}"
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, out, err = info(capsys, rich, "--plot", str(picture), "--json")
    assert code == 0
    json.loads(out)
    for argv, words in (
        (["--plot", "a.xyz"], "no picture format"),
        (["--plot", rich], "is the trace itself"),
        (["--plot", "/dev/stdout"], "standard output"),
        (["--plot", "x.png", "--plot", "y.png"], "given twice"),
    ):
        code, out, err = info(capsys, rich, *argv)
        assert (code, out) == (2, "")
        assert words in err
    empty = tmp_path / "empty.npz"
    px.Trace([], [], []).save(empty)
    code, out, err = info(capsys, str(empty), "--plot", str(tmp_path / "b.png"))
    assert (code, out) == (1, "")
    assert "has no events" in err
    profile = tmp_path / "p.xml"
    profile.write_text('<malloc version="scudo-1">\n<alloc size="23" count="4"/>\n</malloc>\n')
    code, _, err = info(capsys, str(profile), "--plot", str(tmp_path / "c.png"))
    assert (code, err) == (0, "")
    assert (tmp_path / "c.png").exists()


def drawn(trace):
    pytest.importorskip("matplotlib").use("Agg")
    figure = px.plot_trace(trace, name="t")
    figure.canvas.draw()
    return figure


def words_of(figure):
    from matplotlib.text import Text

    return [t.get_text() for t in figure.findobj(Text) if t.get_text()]


def test_a_picture_of_one_event_has_a_line():
    figure = drawn(px.Trace([0], [0], [64]))
    line = figure.axes[0].lines[0]
    assert list(line.get_xdata()) == [0, 1]
    assert list(line.get_ydata()) == [64, 64]
    words = words_of(figure)
    assert "t: 1 event, 1 object" in words
    assert "nothing died: 1 object lives at the end" in words
    assert "request sizes: all 64 B" in words
    words = words_of(drawn(px.Trace([3], [-1], [0], arena=[0])))
    assert {"nothing was allocated", "nothing lived"} <= set(words)


@pytest.mark.parametrize(
    ("step", "unit"), [(1, "ns"), (1_000, "µs"), (10**6, "ms"), (10**9, "s"), (10**12, "s")]
)
def test_a_picture_has_a_unit_of_time_that_fits(step, unit):
    figure = drawn(
        px.Trace([0, 0, 1], [0, 1, 0], [64, 100, 0], time_ns=[7, 7 + step, 7 + 2 * step])
    )
    assert figure.axes[1].get_xlabel() == f"time [{unit}]"
    assert not any(ax.xaxis.get_offset_text().get_text() for ax in figure.axes)
    assert figure.axes[0].get_xlim()[1] >= 1


def test_no_legend_lies_on_a_bar():
    for count in (1, 2, 12):
        figure = drawn(px.Trace([0] * 12, range(12), [2 ** (k % count) for k in range(12)]))
        ax = figure.axes[2]
        legend = ax.get_legend().get_window_extent()
        assert not any(legend.overlaps(bar.get_window_extent()) for bar in ax.patches)
        assert not legend.overlaps(ax.title.get_window_extent())
        assert not legend.overlaps(ax._left_title.get_window_extent())


def test_lifetimes_are_drawn_from_end_to_end():
    figure = drawn(px.Trace([0, 1] * 5, [k // 2 for k in range(10)], [8, 0] * 5))
    ax = figure.axes[3]
    for line in ax.lines:
        xs = line.get_xdata()
        assert (xs[0], xs[-1]) == ax.get_xlim()
        assert (line.get_ydata()[0], line.get_ydata()[-1]) == (0, 100)


@pytest.mark.parametrize(
    "trace",
    [
        px.Trace([], [], []),
        px.Trace([0], [0], [0]),
        px.Trace([0], [0], [2**64 - 1]),
        px.Trace([3], [-1], [0], arena=[0]),
        px.Trace([0, 1], [0, 0], [5, 0], time_ns=[7, 7], key=[2**32 - 1] * 2),
    ],
)
def test_odd_traces(trace, tmp_path, capsys):
    path = tmp_path / "odd.npz"
    trace.save(path)
    assert info(capsys, str(path))[0] == 0
    code, out, _ = info(capsys, str(path), "--json")
    assert code == 0
    json.loads(out)


@given(traces())
def test_tables_count_right(trace):
    asking = [o in (px.OP_ALLOC, px.OP_REALLOC) for o in trace.op.tolist()]
    rows = tables.thread_rows(trace)
    summary = trace.summary()
    assert sum(row["foreign_frees"] for row in rows) == summary["cross_thread_frees"]
    assert sum(row["allocated_bytes"] for row in rows) == summary["allocated_bytes"]
    for row in rows:
        mine = [
            (o, s, a)
            for o, s, t, a in zip(
                trace.op.tolist(), trace.size_bytes.tolist(), trace.thread.tolist(), asking,
                strict=True,
            )
            if t == row["thread"]
        ]  # fmt: skip
        assert row["allocs"] == sum(o == px.OP_ALLOC for o, _, _ in mine)
        assert row["reallocs"] == sum(o == px.OP_REALLOC for o, _, _ in mine)
        assert row["frees"] == sum(o == px.OP_FREE for o, _, _ in mine)
        assert row["allocated_bytes"] == sum(s for _, s, a in mine if a)
    bins = tables.size_bins(trace)
    assert sum(row["requests"] for row in bins) == sum(asking)
    assert sum(row["allocated_bytes"] for row in bins) == summary["allocated_bytes"]
    for row, after in itertools.pairwise(bins):
        assert after["least_bytes"] == row["most_bytes"] + 1
    keys = tables.key_rows(trace)
    if trace.key is None:
        assert keys == []
    else:
        assert sum(row["allocated_bytes"] for row in keys) == summary["allocated_bytes"]
        sums = [row["allocated_bytes"] for row in keys]
        assert sums == sorted(sums, reverse=True)


@given(
    st.lists(st.floats(0, 1e18), max_size=300),
    st.integers(0, 120),
    st.integers(1, 12),
    st.booleans(),
)
def test_an_area_never_misses_the_peak(values, width, height, blocks):
    lines = area(values, width=width, height=height, label=lambda v: f"{v:.0f}", blocks=blocks)
    assert len(lines) == height
    assert all(len(line) <= max(width, 60) for line in lines)
    full = "█" if blocks else "|"
    edge = "┤" if blocks else "|"
    top = lines[0].split(edge, 1)[1]
    peak = max(values, default=0)
    assert (full in top) == (peak > 0)
    assert all(line.isascii() for line in lines) or blocks
    if values and len(values) <= 10 and peak > 0:
        # What is not nothing is seen on the lowest line.
        low = lines[-1].split(edge, 1)[1]
        assert low.strip() != ""


@pytest.mark.parametrize("at", [0, 1, 499, 999])
def test_a_spike_among_many_values_is_as_high_as_it_is(at):
    values = np.ones(1000)
    values[at] = 1000
    lines = area(values, width=60, height=4, label=str, blocks=True)
    assert lines[0].count("█") == 1
    assert lines[1].count("█") == 1
    assert set(lines[3].split("┤")[1]) == {"█", "▁"}


def test_bars():
    assert bar(0, 10, blocks=True) == bar(float("nan"), 10, blocks=False) == ""
    assert bar(1, 4, blocks=True) == "████"
    assert bar(0.5, 4, blocks=False) == "##"
    assert bar(1e-9, 4, blocks=True) == "▏"
    assert bar(1e-9, 4, blocks=False) == "#"
    assert bar(0.3125, 4, blocks=True) == "█▎"


def test_encodings():
    class Stream:
        def __init__(self, encoding):
            self.encoding = encoding

    assert has_blocks(Stream("utf-8"))
    for encoding in ("ascii", "latin-1", "cp037", "no such encoding", None):
        assert not has_blocks(Stream(encoding))
    assert not has_blocks(None)

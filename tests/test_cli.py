import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweep_fakes import Fake, FakeSystem, FakeTrace

import pyallocx as px
from pyallocx import TraceError
from pyallocx.cli import SYSTEMS, main

HERE = Path(__file__).parent


def open_fake(spec, on_error, progress):
    if spec == "bad":
        raise TraceError("bad: line 3: expected a size")
    if spec == "missing":
        raise FileNotFoundError(2, "no such file", spec)
    trace = FakeTrace()
    if on_error == "skip":
        trace.metadata["dropped"] = {"unknown frees": 1234, "double frees": 0}
    return spec or "git.npz", trace


@pytest.fixture
def run(capsys):
    def call(*argv, registry=None):
        code = main(argv, registry=registry or {"fake": Fake}, open_trace=open_fake)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_person_reads_trace_table_answer(run, tmp_path):
    picture = tmp_path / "a.png"
    code, out, err = run("sweep", "fake", "--plot", str(picture))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "replayed: git.npz, command git log, 1,000 events"
    assert lines[-1] == "defaults: chunk_count 4, policy cut"
    order = [out.index(word) for word in ("replayed", "<- knee", "% fewer", f"picture: {picture}")]
    assert order == sorted(order)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_json_is_all_there_is(run):
    code, out, err = run("sweep", "fake", "x.npz", "--retain-bytes", "0,2KiB,inf", "--json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert [row["retain_bytes"] for row in rows] == [0, 2048, "inf"]
    assert '"retain_bytes": 2048,' in out, "whole numbers stay whole beside infinity"
    assert list(rows[0]) == [
        "retain_bytes", "pops", "list_frees", "overhead_bytes", "histogram", "status",
    ]  # fmt: skip


def test_the_grid_is_the_product(run):
    _, out, _ = run(
        "sweep", "fake", "--policy", "keep,cut", "--chunk-count", "1k", "--retain-bytes", "1, 2",
        "--json", "--jobs", "1",
    )  # fmt: skip
    rows = json.loads(out)
    cells = [(r["retain_bytes"], r["chunk_count"], r["policy"]) for r in rows]
    assert cells == [(1, 1000, "keep"), (1, 1000, "cut"), (2, 1000, "keep"), (2, 1000, "cut")]


def test_csv_and_other_axes(run, tmp_path):
    table = tmp_path / "t.csv"
    code, out, _ = run("sweep", "fake", "--csv", str(table), "--x", "pops", "--y", "overhead_bytes")
    assert code == 0
    assert f"table: {table}" in out
    assert "wastage: pops; churn: overhead_bytes" in out
    assert len(table.read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "VERB"),
        (["fly"], "fly"),
        (["sweep"], "SYSTEM"),
        (["sweep", "cars"], "cars"),
        (["sweep", "fake", "--retain", "1"], "--retain"),
        (
            ["sweep", "fake", "--retain-bytes", "-1"],
            "--retain-bytes: retain_bytes=-1: must be 0 to",
        ),
        (["sweep", "fake", "--retain-bytes", "1,,2"], "--retain-bytes: an empty value"),
        (["sweep", "fake", "--retain-bytes", "1KB"], "2KiB"),
        (["sweep", "fake", "--policy", "cutt"], "did you mean 'cut'"),
        (["sweep", "fake", "--jobs", "0"], "1 or more"),
        (["sweep", "fake", "--x", "nope"], "--x: no column 'nope'; there are"),
        (["sweep", "fake", "--x", "histogram"], "does not hold numbers"),
        (["sweep", "fake", "--plot", "a.xyz"], "--plot: no picture format 'xyz'"),
        (["sweep", "fake", "--plot", "/nowhere/a.png"], "/nowhere: no such directory"),
        (["sweep", "fake", "--csv", "/"], "/: is a directory"),
        (["sweep", "fake", "--csv", ""], "--csv: the name of the file is empty"),
        (["sweep", "fake", "--plot", ""], "--plot: the name of the file is empty"),
        (["sweep", "fake", "--csv", "a.png", "--plot", "./a.png"], "--csv and --plot are one file"),
        (["sweep", "fake", "--policy", "cut", "--policy", "keep"], "--policy is given twice"),
        (["sweep", "fake", "--json", "--json"], "--json is given twice"),
        (["info", "--on-error", "raise", "--on-error", "raise"], "--on-error is given twice"),
        (["sweep", "fake", "--chunk-count", "1_000"], "--chunk-count: '1_000' is not a number"),
        (["sweep", "fake", "--policy", "cut", "--x", "retain_bytes"], "no column 'retain_bytes'"),
        (["sweep", "fake", "missing"], "missing: no such file"),
        (["info", "missing", "--json"], "missing: no such file"),
        (["info", "x", "--on-error", "drop"], "drop"),
    ],
)
def test_wrong_use_is_2(run, argv, words):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("pyallocx: error: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize("verb", [["sweep", "fake"], ["info"]])
def test_a_bad_trace_is_1(run, verb):
    code, out, err = run(*verb, "bad")
    assert (code, out, err) == (1, "", "pyallocx: error: bad: line 3: expected a size\n")


def test_failed_cells_are_1_and_still_shown(run, tmp_path):
    picture = tmp_path / "a.png"
    argv = ["sweep", "fake", "--policy", "bad_group,cut", "--plot", str(picture)]
    code, out, err = run(*argv)
    assert code == 1
    assert "error: OverflowError" in out
    assert "1 of 2 cells failed: OverflowError: too much" in err
    assert picture.exists()
    code, out, _ = run(*argv, "--json")
    assert code == 1
    assert [row["status"][:5] for row in json.loads(out)] == ["error", "ok"]
    code, out, _ = run("sweep", "fake", "--policy", "bad_group", "--plot", str(picture))
    assert code == 1
    assert "picture" not in out


@pytest.mark.parametrize("flag", ["--csv", "--plot"])
@pytest.mark.parametrize(
    ("name", "words"), [("-", "/dev/stdout"), ("", "name of the file is empty")]
)
def test_dash_is_no_file(run, flag, name, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("sweep", "fake", flag, name)
    assert (code, out) == (2, "")
    assert f"{flag}: " in err
    assert words in err
    assert list(tmp_path.iterdir()) == []
    assert run("sweep", "fake", "--csv", "./-")[0] == 0
    assert (tmp_path / "-").exists()


def test_what_no_cell_can_run_with_is_a_usage_error(capsys):
    for argv in (["--chunk-bytes", "5000"], ["--chunk-bytes", "4096,5000"], ["--page-bytes", "12"]):
        assert main(["sweep", "code", *argv]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "bytes" in err
        assert "allowed " in err
    assert main(["sweep", "code", "--chunk-bytes", "4096,65536", "--page-bytes", "4096,65536"]) == 1
    out, err = capsys.readouterr()
    assert "1 of 4 cells failed" in err
    assert "2,000 synthetic methods in two streams, 4,000 allocs" in out


def test_help_and_version(run):
    for argv in (["--help"], ["sweep", "--help"], ["info", "--help"]):
        code, out, _ = run(*argv)
        assert code == 0
        assert "usage: pyallocx" in out
    code, out, _ = run("sweep", "fake", "--help")
    assert code == 0
    assert "--retain-bytes A,B,..." in out
    assert "100 % whole" in out
    assert "0,64,2048,inf" in out
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("pyallocx 0")


def test_only_the_system_asked_for_is_imported(run):
    registry = {"fake": "sweep_fakes:Fake", "other": "no.such.module:Thing"}
    code, _, _ = run("sweep", "fake", "--json", registry=registry)
    assert code == 0
    assert SYSTEMS["arena"] == "pyallocx.arena:Arena"


def test_a_system_brings_its_own_trace(run):
    class Brings(FakeSystem):
        def default_trace(self):
            return "nine made-up events", FakeTrace()

    registry = {"fake": Brings()}
    _, out, _ = run("sweep", "fake", registry=registry)
    assert out.startswith("replayed: nine made-up events, ")
    _, out, _ = run("sweep", "fake", "mine.npz", registry=registry)
    assert out.startswith("replayed: mine.npz, ")
    _, out, _ = run("sweep", "fake", "--help", registry=registry)
    assert "by default a synthetic one" in " ".join(out.split())


def test_code_is_swept_without_a_trace(capsys):
    assert main(["sweep", "code", "--chunk-bytes", "4096,64KiB", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["chunk_bytes"] for row in rows] == [4096, 65536]
    assert rows[0]["methods"] == 4000
    assert rows[0]["chunk_maps"] > 10 * rows[1]["chunk_maps"]


def test_a_system_explains_itself(run):
    class Talks(FakeSystem):
        def explain(self, result):
            return [f"{len(result)} answers"]

    _, out, _ = run("sweep", "fake", registry={"fake": Talks()})
    assert "\n4 answers\n" in out


def test_info(run):
    code, out, err = run("info", "git.npz")
    assert (code, err) == (0, "")
    assert "trace: git.npz" in out
    assert "1,048,576 bytes (1 MiB)" in out
    assert "2,500,000,000 ns (2.5 s)" in out
    assert "unknown" in out
    dropped = next(line for line in out.splitlines() if "dropped events" in line)
    assert dropped.split() == ["dropped", "events", "0"]
    _, out, _ = run("info", "git.npz", "--on-error", "skip")
    assert "1,234 unknown frees" in out
    _, out, _ = run("sweep", "fake", "--on-error", "skip")
    assert "1,234 events of the file dropped" in out


def test_info_shows_any_metadata_on_one_line(capsys):
    trace = FakeTrace(
        metadata={"counts": {"frees_of_null": 2}, "tids": list(range(500)), "program": "a\n\x1b[2J"}
    )
    for argv in (["info"], ["sweep", "fake"]):
        main(argv, registry={"fake": Fake}, open_trace=lambda *asked: ("evil\r", trace))
        out = capsys.readouterr().out
        assert "a\\n\\x1b[2J" in out
        assert "\x1b" not in out
        assert "\r" not in out
        if argv == ["info"]:
            assert "frees_of_null 2" in out
            assert "... (488 more)" in out


def test_info_json(run):
    code, out, _ = run("info", "git.npz", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["trace"] == "git.npz"
    assert answer["summary"] == FakeTrace().summary()
    assert answer["metadata"] == FakeTrace().metadata


SCRIPT = """
import sys
from pyallocx.cli import main
from sweep_fakes import Fake, FakeTrace, SlowFake

trace = FakeTrace(metadata={"program": "caf\\u00e9 \\u2713", "command": "caf\\u00e9"})
registry = {"fake": Fake, "slow": SlowFake}
sys.exit(main(registry=registry, open_trace=lambda *asked: ("tr\\u00e4ce", trace)))
"""


def start(*argv, **more):
    env = os.environ | {"PYTHONPATH": str(HERE)} | more.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *argv], env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
@pytest.mark.parametrize("argv", [["sweep", "fake"], ["info"], ["sweep", "fake", "--json"]])
def test_any_locale(env, argv):
    out, err = start(*argv, env=env).communicate(timeout=60)
    assert err == ""
    assert out


def test_ctrl_c_is_quiet_and_quick():
    process = start("sweep", "slow")
    # Long enough to be in the sweep on a busy machine; sooner is a Ctrl-C during imports.
    time.sleep(4)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")
    assert time.monotonic() - sent < 2


def test_a_reader_that_leaves():
    process = start("info")
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, "")


class Unmeasured(FakeSystem):
    """Nothing is known of its default wastage."""

    def run(self, trace, cells, control):
        return [row | {"overhead_bytes": None} for row in super().run(trace, cells, control)]


@pytest.mark.parametrize("json_only", [[], ["--json"]])
def test_a_picture_that_cannot_be_drawn_does_not_cost_the_table(run, tmp_path, json_only):
    table, picture = tmp_path / "t.csv", tmp_path / "a.png"
    argv = ["sweep", "fake", "--csv", str(table), "--plot", str(picture), *json_only]
    code, out, err = run(*argv, registry={"fake": Unmeasured()})
    assert code == 1
    assert err.startswith("pyallocx: error: --plot: no measured row has finite numbers in")
    assert "1000" in out.replace(",", "")
    assert json_only or "No cell has a number in overhead_bytes" in out
    assert len(table.read_text().splitlines()) == 5
    assert not picture.exists()


def test_a_file_that_can_no_longer_be_written_does_not_cost_the_table(run, monkeypatch, tmp_path):
    def full(self, path):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr("pyallocx.table.SweepResult.to_csv", full)
    code, out, err = run("sweep", "fake", "--csv", str(tmp_path / "t.csv"))
    assert code == 1
    assert "<- knee" in out
    assert err == f"pyallocx: error: --csv: {tmp_path}/t.csv: No space left on device\n"


@pytest.mark.parametrize("flag", ["--csv", "--plot"])
@pytest.mark.parametrize("link", ["t.png", "./t.png", "soft.png", "hard.png"])
def test_the_trace_is_not_overwritten(run, tmp_path, monkeypatch, flag, link):
    monkeypatch.chdir(tmp_path)
    trace = tmp_path / "t.png"
    trace.write_bytes(b"events")
    os.symlink(trace, tmp_path / "soft.png")
    os.link(trace, tmp_path / "hard.png")
    code, out, err = run("sweep", "fake", flag, link, str(trace))
    assert (code, out) == (2, "")
    assert f"{flag}: {link} is the trace itself" in err
    assert trace.read_bytes() == b"events"


def test_a_device_takes_several_outputs(run):
    code, _, _ = run("sweep", "fake", "--csv", os.devnull, "--plot", os.devnull)
    assert code == 0


@pytest.mark.parametrize("argv", [["info"], ["sweep", "fake"], ["--help"], ["--version"], ["fly"]])
@pytest.mark.parametrize("closed", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_closed_streams(monkeypatch, argv, closed):
    with monkeypatch.context() as patch:
        for name in closed:
            patch.setattr(sys, name, None)
        code = main(argv, registry={"fake": Fake}, open_trace=open_fake)
        assert all(getattr(sys, name) is None for name in closed)
    assert code == (2 if argv == ["fly"] else 0)


def test_sizes_that_add_up_to_too_much_are_1(tmp_path, capsys):
    path = tmp_path / "big.npz"
    px.Trace([0, 0], [0, 1], [2**64 - 1, 2**64 - 1]).save(path)
    assert main(["info", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pyallocx: error: big.npz: ")
    assert "64 bits" in err
    assert main(["sweep", "arena", str(path), "--retain-bytes", "0"]) == 0


@pytest.mark.parametrize(
    ("dropped", "text"),
    [
        ({"a": "b\x1b"}, "a b\\x1b"),
        ("x", "x"),
        ([1, [2]], "1 2"),
        ({"a": -1, "b": True}, "a -1, b True"),
        ({"a": None}, "a None"),
        (1.5, "1.5"),
        ({"a": {"b": {"c": 1}}}, "a b c 1"),
        (1234, "1,234 events"),
    ],
)
def test_metadata_of_a_stranger(tmp_path, capsys, dropped, text):
    path = tmp_path / "odd.npz"
    metadata = {"dropped": dropped, "program": {"a": [1]}, "command": 7, "name": [], "file": {}}
    px.Trace([0], [0], [8], metadata=metadata).save(path)
    px.load(path)._repr_html_()
    assert main(["info", str(path)]) == 0
    line = next(li for li in capsys.readouterr().out.splitlines() if "dropped events" in li)
    assert line.split(maxsplit=2)[2] == text
    assert main(["sweep", "arena", str(path)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert text.removesuffix(" events") in first
    assert "command 7" in first
    assert main(["info", str(path), "--json"]) == 0


def test_max_object_bytes_takes_what_it_says(capsys):
    assert main(["sweep", "arena", "--max-object-bytes", "auto,1e3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["max_object_bytes"] for row in rows] == ["auto", 1000]
    assert main(["sweep", "arena", "--help"]) == 0
    assert "(default auto)" in " ".join(capsys.readouterr().out.split())


def test_a_column_is_known_once(run, capsys):
    assert main(["sweep", "arena", "--x", "nope", "--retain-bytes", "1"]) == 2
    known = capsys.readouterr().err.split("there are ")[1].strip().split(", ")
    assert len(known) == len(set(known))


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "pyallocx", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"pyallocx {px.__version__}\n"
    assert px.__version__[0].isdigit()


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *more):
        if name in ("numpy", "pyallocx.cli"):
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from _pyallocx_command import main
sys.exit(main())
"""


def test_ctrl_c_while_the_command_is_being_imported():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_command_is_the_same_command():
    script = "import sys; from _pyallocx_command import main; sys.exit(main())"
    for argv, code in ([["--version"], 0], [["fly"], 2]):
        done = subprocess.run(
            [sys.executable, "-c", script, *argv], capture_output=True, check=False
        )
        assert done.returncode == code

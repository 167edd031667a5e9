"""The verb `minimize`: a command judges traces."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import pyallocx as px
from pyallocx.cli import main
from pyallocx.cli_minimize import split_command

# Needs two objects of 100 or more at once; without NumPy, so that it starts quickly.
JUDGE = """
import struct, sys, zipfile
def column(name, letter):
    data = file.read(name + ".npy")
    data = data[10 + struct.unpack("<H", data[8:10])[0]:]
    return struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data)
with zipfile.ZipFile(sys.argv[1]) as file:
    events = zip(column("op", "B"), column("object", "I"), column("size_bytes", "Q"))
large = set()
for op, number, size in events:
    if op == 1:
        large.discard(number)
    elif size >= 100:
        large.add(number)
    if len(large) == 2:
        sys.exit(0)
sys.exit(3)
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "whole.npz"
    px.synthesize(60, seed=1, sizes=px.synth.Uniform(1, 200)).save(path)
    return str(path)


JUDGES = [sys.executable, "-I", "-S", "-c", JUDGE, "{}"]


def run(capsys, *argv):
    code = main(["minimize", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_down_to_two_events(capsys, tmp_path, trace):
    small = tmp_path / "small.npz"
    code, out, err = run(capsys, trace, "-o", str(small), "--", *JUDGES)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("whole.npz: 60 events became 2, ")
    assert lines[1:3] == ["  alloc   object 0 size_bytes 100", "  alloc   object 1 size_bytes 100"]
    assert lines[3] == f"trace: {small}"
    assert px.load(small).size_bytes.tolist() == [100, 100]


def test_a_shell_does(capsys, tmp_path, trace):
    small = tmp_path / "small.npz"
    command = ["sh", "-c", 'test "$(wc -c < {})" -gt 1500; exit $((1 - $?))']
    for flags, expected in (([], 1), (["--nonzero"], 0)):
        code, out, err = run(capsys, trace, "-o", str(small), "--json", *flags, "--", *command)
        assert code == expected
        if expected:
            assert out == ""
            assert "nothing to minimize" in err
            assert "exit code 1" in err
            assert not small.exists()
        else:
            answer = json.loads(out)
            assert answer["minimized"]["minimal"]
            assert answer["events"] == len(px.load(small))
    # A signal is a failure of the program, which is what --nonzero looks for.
    killed = ["sh", "-c", "kill -KILL $$ # {}"]
    assert run(capsys, trace, "-o", str(small), "--nonzero", "--", *killed)[0] == 0
    assert len(px.load(small)) == 0
    code, _, err = run(capsys, trace, "-o", str(small), "--", *killed)
    assert code == 1
    assert "signal 9" in err


def test_other_formats(capsys, tmp_path, trace):
    small = tmp_path / "small.txt"
    command = ["sh", "-c", 'test "$(grep -c malloc {})" -ge 3']
    code, out, err = run(capsys, trace, "-o", str(small), "--to", "aosp", "--", *command)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("whole.npz: 60 events became 3, ")
    assert small.read_text().count("malloc") == 3
    assert px.load(small).n_objects == 3


def test_limits(capsys, tmp_path, trace):
    small = tmp_path / "small.npz"
    argv = [trace, "-o", str(small)]
    code, out, _ = run(capsys, *argv, "--max-calls", "1", "--", "true", "{}")
    assert code == 0
    assert "not the smallest" in out
    assert len(px.load(small)) == 60
    slow = ["sh", "-c", "sleep 60 # {}"]
    started = time.monotonic()
    code, _, err = run(capsys, *argv, "--timeout", "0.05", "--", *slow)
    assert code == 1
    assert "after 0.05 s" in err
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-o", "x.npz"], "no command"),
        (["-o", "x.npz", "--"], "no command"),
        (["-o", "x.npz", "--", "true"], "has no {}"),
        (["--", "true", "{}"], "-o FILE is needed"),
        (["-o", "x.npz", "--timeout", "0", "--", "true", "{}"], "--timeout: '0'"),
        (["-o", "x.npz", "--timeout", "nan", "--", "true", "{}"], "--timeout: 'nan'"),
        (["-o", "x.npz", "--max-calls", "0", "--", "true", "{}"], "--max-calls: '0'"),
        (["-o", "x.npz", "--to", "rep", "--", "true", "{}"], "--to"),
        (["-o", "x.odd", "--", "true", "{}"], "no suffix that says a format"),
        (["-o", "x.npz", "--fast", "--", "true", "{}"], "unrecognized"),
        (["-o", "-", "--", "true", "{}"], "- is no file"),
        (["-o", "x.npz", "--", "no-such-command-here", "{}"], "No such file"),
        (["-o", "x.npz", "--", "sh", "-c", "exit 127 # {}"], "ended with 127"),
        (["-o", "x.npz", "--json", "-o", "y.npz", "--", "true", "{}"], "given twice"),
    ],
)
def test_wrong_use(capsys, tmp_path, monkeypatch, argv, words, trace):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, trace, *argv)
    assert (code, out) == (2, "")
    assert words in err
    assert not (tmp_path / "x.npz").exists()


def test_the_trace_is_not_overwritten(capsys, trace):
    code, _, err = run(capsys, trace, "-o", trace, "--", "true", "{}")
    assert code == 2
    assert "is the trace itself" in err


def test_what_follows_the_dashes_is_the_command():
    assert split_command(["a", "--json", "--", "-o", "--", "x"]) == (
        ["a", "--json"], ["-o", "--", "x"],
    )  # fmt: skip
    assert split_command(["a"]) == (["a"], [])


def test_a_judge_that_contradicts_itself_is_told(capsys, tmp_path, trace):
    small, seen = tmp_path / "small.npz", tmp_path / "seen"
    # Always the same but for the fourth run, which is the second on the result.
    script = f"echo x >> {seen}; test $(wc -l < {seen}) -lt 4 # {{}}"
    argv = [trace, "-o", str(small), "--", "sh", "-c", script]
    code, out, err = run(capsys, *argv)
    assert (code, err) == (0, "")
    assert "the judge does not always answer the same" in out
    assert "stopped before" not in out
    seen.unlink()
    answer = json.loads(run(capsys, "--json", *argv)[1])
    assert answer["minimized"]["answers_differ"] is True
    assert answer["minimized"]["minimal"] is False
    assert "always" not in run(capsys, trace, "-o", str(small), "--", "true", "{}")[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_writes_the_best_so_far(tmp_path, trace, number):
    small, seen = tmp_path / "small.npz", tmp_path / "seen"
    # The whole trace does, twice, the next asked about does not, and another takes long.
    script = (
        f"echo x >> {seen}; n=$(wc -l < {seen}); [ $n -gt 3 ] && sleep 60; "
        "exit $((n < 3 ? 5 : 0)) # {}"
    )
    command = [
        *(sys.executable, "-m", "pyallocx", "minimize", trace, "-o", str(small), "--nonzero", "--"),
        *("sh", "-c", script),
    ]
    folder = tmp_path / "temporary"
    folder.mkdir()
    env = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            if seen.exists() and seen.read_text().count("x") >= 4:
                break
            time.sleep(0.02)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, "")
    assert list(folder.iterdir()) == []
    assert "stopped before" in err
    assert "Traceback" not in err
    made = px.load(small).metadata["minimized"]
    assert (made["from_events"], made["minimal"]) == (60, False)

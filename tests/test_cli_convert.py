"""The verb that writes a trace in another format."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import pyallocx as px
from pyallocx.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(word) for word in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def trace() -> px.Trace:
    return px.synthesize(2000, seed=3, arenas=3)


@pytest.fixture
def saved(tmp_path: Path, trace: px.Trace) -> Path:
    path = tmp_path / "in.npz"
    trace.save(path)
    return path


def test_convert_says_what_was_left_out(run, saved: Path, trace: px.Trace, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    code, text, err = run("convert", saved, out)
    assert (code, err) == (0, "")
    first, *more = text.splitlines()
    assert first == f"in.npz: 2,000 events written to {out} as aosp"
    assert more[0].startswith("left out: column ")
    assert "column arena" in more[0]
    destroys = trace.summary()["destroys"]
    assert any("frees written for objects that died" in line for line in more) == bool(destroys)
    assert px.load(out).summary()["allocs"] == trace.summary()["allocs"]


def test_convert_in_json(run, saved: Path, trace: px.Trace, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    code, text, err = run("convert", saved, out, "--json")
    assert (code, err) == (0, "")
    told = json.loads(text)
    assert told["written"] == str(out)
    assert (told["trace"], told["format"], told["events"]) == ("in.npz", "csv", 2000)
    assert px.load(out) == trace


def test_convert_to_every_format(run, saved: Path, trace: px.Trace, tmp_path: Path) -> None:
    for name, to in (("a", "csv"), ("b.txt", "npz"), ("c.npz", None), ("d.csv.gz", None)):
        out = tmp_path / name
        assert run("convert", saved, out, *(["--to", to] if to else []))[0] == 0
        assert px.load(out) == trace
    assert run("convert", saved, tmp_path / "e.h", "--name", "bench", "--replay")[0] == 0
    assert "bench_replay(void)" in (tmp_path / "e.h").read_text()


def test_convert_a_shipped_trace(run, tmp_path: Path) -> None:
    assert run("convert", "shipped:sqlite3", tmp_path / "a.zip")[0] == 0
    assert px.load(tmp_path / "a.zip").summary() == px.load_shipped("sqlite3").summary()


def test_convert_a_slice(run, saved: Path, trace: px.Trace, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    for text, start, stop in (("100:900", 100, 900), (":900", None, 900), ("1500:", 1500, None)):
        assert run("convert", saved, out, "--slice", text)[0] == 0
        assert px.load(out) == trace.slice(start, stop)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["IN"], "required: OUT"),
        (["IN", "IN"], "is the trace itself, it would be overwritten"),
        (["IN", "LINK"], "is the trace itself, it would be overwritten"),
        (["IN", "-"], "- is no file"),
        (["IN", "DIR/none/a.csv"], "no such directory"),
        (["IN", "DIR/a.foo"], "--to takes one of npz, aosp, csv, parquet, c"),
        (["IN", "DIR/a.csv", "--to", "elf"], "format is 'elf'"),
        (["IN", "DIR/a.npz.gz"], "not written inside .gz"),
        (["IN", "DIR/a.csv", "--name", "x"], "--name: is for format c, not for csv"),
        (["IN", "DIR/a.csv", "--replay"], "--replay: is for format c"),
        (["IN", "DIR/a.h", "--name", "1"], "expected a name of C"),
        (["IN", "DIR/a.csv", "--slice", "5"], "--slice: '5' is not A:B"),
        (["IN", "DIR/a.csv", "--slice=-5:9"], "two numbers of events; each may be left out"),
        (["IN", "DIR/a.csv", "--slice", "5:-9"], "none is negative"),
        (["IN", "DIR/a.csv", "--slice", "a:b"], "--slice: 'a:b' is not A:B"),
        (["IN", "DIR/a.csv", "--slice", "9:5"], "ends before it begins"),
        (["PROFILE", "DIR/a.csv"], "is a profile, which has no events"),
        (["IN", "/dev/stdout", "--to", "csv", "--json"], "is standard output, where"),
        (["DIR/none", "DIR/a.csv"], "no such file"),
    ],
)
def test_wrong_use(run, saved: Path, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "profile").write_text("8 1\n16 2\n")
    (tmp_path / "link.csv").symlink_to(saved)
    names = {"IN": saved, "LINK": tmp_path / "link.csv", "PROFILE": tmp_path / "profile"}
    before = saved.read_bytes()
    argv = [str(names.get(word, word)).replace("DIR", str(tmp_path)) for word in words]
    code, out, err = run("convert", *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert saved.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["in.npz", "link.csv", "profile"]


def test_a_bad_trace_is_found_wrong(run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("1: malloc 0x10 5\n1: free 0x20\n")
    code, out, err = run("convert", bad, tmp_path / "a.csv")
    assert (code, out) == (1, "")
    assert "line 2" in err
    assert not (tmp_path / "a.csv").exists()
    assert run("convert", bad, tmp_path / "a.csv", "--on-error", "skip")[0] == 0
    assert len(px.load(tmp_path / "a.csv")) == 1


def test_to_standard_output(saved: Path, trace: px.Trace, tmp_path: Path, capfd) -> None:
    assert main(["convert", str(saved), "/dev/stdout", "--to", "csv"]) == 0
    out, err = capfd.readouterr()
    (tmp_path / "a.csv").write_text(out)
    assert px.load(tmp_path / "a.csv") == trace
    assert "written to /dev/stdout as csv" in err

"""Outputs that lead to standard output, or to what was read."""

import json
import os
import subprocess
import sys

import pytest

import pyallocx as px
from pyallocx.cli import main

STDOUT = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link.csv"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").write_text("16 5\n100 3\n")
    (tmp_path / "trace").write_text("1: malloc 0x1000 16\n1: malloc 0x2000 64\n1: free 0x1000\n")
    os.symlink("/dev/stdout", tmp_path / "link.csv")
    return tmp_path


def command(*argv, stdout=subprocess.PIPE):
    return subprocess.run(
        [sys.executable, "-m", "pyallocx", *argv], stdout=stdout, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("flag", ["--csv", "--plot"])
@pytest.mark.parametrize("link", ["t.png", "soft.png", "hard.png"])
def test_the_table_is_not_overwritten(flag, link, place, capsys):
    px.SizeMap([16, 128]).save("t.png")
    os.symlink("t.png", "soft.png")
    os.link("t.png", "hard.png")
    before = (place / "t.png").read_bytes()
    assert main(["waste", "one", "--classes", "t.png", flag, link]) == 2
    assert f"{flag}: {link} is the table itself" in capsys.readouterr().err
    assert (place / "t.png").read_bytes() == before


@pytest.mark.parametrize("name", STDOUT)
def test_standard_output_keeps_what_is_in_it(name, place):
    (place / "log").write_text("kept\n")
    with open("log", "a") as log:
        done = command("fit", "one", "--classes", "2", "--curve", name, stdout=log)
    assert (done.returncode, done.stderr) == (0, "")
    text = (place / "log").read_text()
    assert text.startswith("kept\nclasses,")
    assert text.index("classes,") < text.index("fitted to: one")


def test_standard_output_in_the_middle_of_a_file(place):
    with open("log", "w") as log:
        log.write("kept\n")
        log.flush()
        done = command("fit", "one", "--plot", "/dev/stdout", "--export", "flat", "-o", "t.h",
                       stdout=log)  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = (place / "log").read_bytes()
    assert data.startswith(b"kept\n\x89PNG")
    assert b"fitted to: one" in data


def test_standard_output_that_is_a_pipe(place):
    done = command("waste", "one", "--csv", "/dev/stdout")
    assert done.returncode == 0
    assert done.stdout.startswith("name,classes,")
    assert "table: /dev/stdout" in done.stdout


@pytest.mark.parametrize("name", [*STDOUT, "log"])
@pytest.mark.parametrize(
    "argv",
    [
        ["waste", "one", "--json", "--csv"],
        ["waste", "one", "--json", "--plot"],
        ["fit", "one", "--json", "--curve"],
        ["fit", "one", "--export", "flat", "--curve"],
        ["sweep", "arena", "trace", "--json", "--csv"],
    ],
)
def test_standard_output_is_taken(argv, name, place):
    if argv[-1] == "--plot" and name in ("link.csv", "log"):
        pytest.skip("no picture has this suffix")
    with open("log", "w") as log:
        done = command(*argv, name, stdout=log)
    assert done.returncode == 2
    assert f"{argv[-1]}: {name} is standard output, where " in done.stderr
    assert (place / "log").read_text() == ""


def test_two_on_standard_output(place, capsys):
    argv = ["fit", "one", "--export", "flat", "-o", "/dev/stdout", "--curve", "/dev/fd/1"]
    assert main(argv) == 2
    assert "-o and --curve both go to standard output" in capsys.readouterr().err


def test_a_file_of_the_same_contents_is_another_file(place):
    with open("log", "w") as log:
        done = command("waste", "one", "--json", "--csv", "w.csv", stdout=log)
    assert done.returncode == 0, done.stderr
    assert json.loads((place / "log").read_text())["programs"] == ["one"]
    assert (place / "w.csv").exists()

"""The verbs of the command line about size classes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pyallocx import _lookupbench
from pyallocx.cli import main
from pyallocx.sizemap import MAP_KINDS, SizeMap


@pytest.fixture
def quick(monkeypatch):
    """Measure just long enough to see that it works."""
    whole = _lookupbench.measure

    def measure(sizes, **options):
        return whole(sizes, **options | {"seconds": 0, "least": 1, "progress": False})

    monkeypatch.setattr(_lookupbench, "SIZES", 1 << 12)
    monkeypatch.setattr(_lookupbench, "measure", measure)


def test_the_map_that_is_measured():
    assert _lookupbench.android64().violations() == ()
    assert _lookupbench.android64().memory_bytes == 640


def test_a_person_reads_a_row_for_each_kind(capsys, quick):
    assert main(["lookup-bench"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("android64: 32 classes up to 65,552 bytes, ")
    assert [line.split()[0] for line in lines[4:]] == list(MAP_KINDS)
    assert lines[5].count("1.00x") == 3


def test_json(capsys, quick):
    assert main(["lookup-bench", "--classes", "16,0x20,80,200", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["classes"], result["largest_bytes"], err) == (4, 200, "")
    by_kind = {row["kind"]: row for row in result["kinds"]}
    assert by_kind["fixed"]["note"] == "classes of its own"
    assert by_kind["flat"]["memory_bytes"] == len(SizeMap([16, 32, 80, 200]).table)
    for row in by_kind.values():
        assert all(row[f"{order}_ns"] > 0 for order in _lookupbench.ORDERS)


def test_the_largest_size_that_is_looked_up(capsys, quick, monkeypatch):
    drawn = []
    draw = _lookupbench.sizes_to_look_up
    monkeypatch.setattr(
        _lookupbench, "sizes_to_look_up", lambda most: drawn.append(draw(most, 4096)) or drawn[-1]
    )
    for given, most in (([], 65552), (["--up-to", "0x400"], 1024), (["--up-to", "1"], 1)):
        assert main(["lookup-bench", "--json", *given]) == 0
        assert json.loads(capsys.readouterr().out)["up_to_bytes"] == most
        assert most / 2 < drawn[-1].max() <= most


def test_time_that_others_take_does_not_count(monkeypatch):
    # On a busy machine a long measurement is interrupted, and a short one is not.
    monkeypatch.setattr(_lookupbench, "SIZES", 1 << 12)
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    result = _lookupbench.measure(_lookupbench.android64(), seconds=0, least=3)
    for row in result["kinds"]:
        assert all(row[f"{order}_ratio"] == 1 for order in _lookupbench.ORDERS)


def test_a_preset(capsys, quick):
    assert main(["lookup-bench", "--preset", "jemalloc"]) == 0
    assert capsys.readouterr().out.startswith("jemalloc: 53 classes up to 262,144 bytes")


def test_a_kind_that_is_not_possible(capsys, quick):
    assert main(["lookup-bench", "--classes", "24,40,1073741830,1073741831"]) == 0
    out, _ = capsys.readouterr()
    assert "table             not possible: no table map: V2" in out
    assert main(["lookup-bench", "--classes", "24,40,1073741830,1073741831", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "table" in result["missing"]
    assert all(row["random_ratio"] is None for row in result["kinds"])


def test_the_sums_agree():
    maps, missing = _lookupbench.contestants(SizeMap.fixed(3, 5, 8, 17))
    assert missing == {}
    assert [one.note for one in maps] == [""] * 5
    sizes = _lookupbench.sizes_to_look_up(2**17, 1 << 12)
    sums = {one.map._core.measure(sizes, chained) for one in maps for chained in (False, True)}
    assert sums == {int(maps[0].map.class_of(sizes).sum(dtype=int))}
    wide = SizeMap(range(16, 16 * 300, 16))
    assert wide._core.measure(sizes, True) == int(wide.class_of(sizes).sum(dtype=int))


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--classes", "16,8"], "class 2 is 8 after 16"),
        (["--classes", "16,x"], "--classes"),
        (["--classes", ""], "--classes"),
        (["--classes", "16", "--classes", "17"], "given twice"),
        (["--classes", "16", "--preset", "glibc"], "only one of them"),
        (["--up-to", "65553"], "--up-to: must be from 1 to the largest class, 65552, got 65553"),
        (["--up-to", "0"], "--up-to: must be from 1"),
        (["--up-to", "1 KiB"], "--up-to"),
        (["--preset", "no such allocator"], "--preset"),
        (["--fast"], "unrecognized"),
    ],
)
def test_wrong_use(argv, text, capsys, quick):
    assert main(["lookup-bench", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err


def test_ctrl_c_is_quiet():
    command = [sys.executable, "-m", "pyallocx", "lookup-bench"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        time.sleep(2)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")

"""The table of formats against the readers, the writers, the recognisers and the documents."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from format_cases import CODE_SAMPLES, SAMPLES, TEXTS

import pyallocx as px
from pyallocx import _tracefile, cli, profiles, writers
from pyallocx._core import TraceReader
from pyallocx._recognise import _RESEMBLES, recognise_text, resembled_text
from pyallocx.formats import CARRIES, markdown

BY_NAME = {one.name: one for one in px.formats() if one.kind != "profile"}
COLUMNS = {"time": "time_ns", "alignment": "align_log2", "calls": "call", "arenas": "arena"}


def load(tmp_path: Path, data: bytes, **options: str) -> px.Trace:
    path = tmp_path / "t"
    path.write_bytes(data)
    return px.load(path, **options)  # type: ignore[arg-type]


def test_the_table_names_what_there_is() -> None:
    read = [one.name for one in px.formats() if one.read and one.kind != "profile"]
    assert sorted(read) == sorted(_tracefile.FORMATS)
    assert sorted(one.name for one in px.formats() if one.write and one.kind != "profile") == (
        sorted(writers.TARGETS)
    )
    of_profiles = [one.name for one in px.formats() if one.kind == "profile"]
    assert sorted(of_profiles) == sorted(profiles.FORMATS)
    assert len({(one.kind == "profile", one.name) for one in px.formats()}) == len(px.formats())


def test_every_text_format_has_a_sample_and_a_recogniser() -> None:
    assert set(TEXTS) == set(TraceReader.formats())
    assert set(_RESEMBLES) == {name for name in TEXTS if not name.startswith("heaptrack")}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_what_it_says_that_it_carries(tmp_path: Path, name: str) -> None:
    """A sample has every kind of line, so what is not in its trace is not carried."""
    trace = load(tmp_path, SAMPLES[name])
    one = BY_NAME[name]
    assert (one.order, one.sizes) == ("yes", "yes")
    for carried, column in COLUMNS.items():
        there = getattr(trace, column) is not None
        says = getattr(one, carried)
        assert says == ("yes" if there else "no") or says == "some", (carried, there)
        if says == "some":
            assert there or (name, carried) in {("ltrace", "time"), ("aosp", "time")}
    numbered = "tids" in trace.metadata
    assert one.threads == ("no" if not numbered else one.threads)
    if one.threads == "yes":
        assert numbered
    if name == "rawlog":
        assert (one.sites, trace.key is not None) == ("some", True)
    elif one.kind == "trace":
        assert one.sites == ("yes" if trace.key is not None else "no")


def test_some_is_where_the_file_has_it(tmp_path: Path) -> None:
    assert load(tmp_path, b"1: malloc 0x10 5\n").time_ns is None
    assert load(tmp_path, b"1.5 malloc(5) = 0x10\n").time_ns is not None
    assert load(tmp_path, b"malloc(5) = 0x10\n").align_log2 is None
    assert "tids" not in load(tmp_path, b"malloc(5) = 0x10\n").metadata


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_sample_is_recognised_as_itself(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, SAMPLES[name]).metadata["reader"] == name


def test_no_other_recogniser_wants_a_sample() -> None:
    """Not even as a second choice, but for perf maps, in which any name makes a line."""
    for name, data in SAMPLES.items():
        wanted = [format for _, format in recognise_text(data)]
        assert wanted == ([name] if name in TEXTS else []), name


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_sample_resembles_nothing_but_its_format(name: str) -> None:
    # A file of valgrind begins with its banner, one of bionic with a comment.
    none = name in ("valgrind", "malloc_sql") or name.startswith("heaptrack")
    assert resembled_text(TEXTS[name]) == (None if none else name)


def test_profiles_are_not_taken_for_traces(tmp_path: Path, shared_data: Path) -> None:
    for folder in ("formats", "fleetbench"):
        for path in sorted((shared_data / "traces" / folder).iterdir()):
            if path.name in ("glibc_mtrace.txt", "ltrace.txt"):
                continue
            with pytest.raises(px.TraceError, match="expected a trace"):
                px.load(path)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_file_is_a_trace_where_a_profile_may_stand(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(TEXTS[name])
    found = px.load_profile_or_trace(path)
    assert found.sizes.tolist() == px.load(path).profile().sizes.tolist()


def test_a_reader_of_another_format_refuses(tmp_path: Path) -> None:
    for name in TEXTS:
        for other, data in TEXTS.items():
            pair = {name, other}
            if name != other and pair != {"heaptrack", "heaptrack_interpreted"}:
                with pytest.raises(px.TraceError):
                    load(tmp_path, data, format=name)


def test_code_samples_are_code() -> None:
    assert {name for name, one in BY_NAME.items() if one.kind == "code"} == set(CODE_SAMPLES)


# ---- the command and the documents ---------------------------------------------------------------


def test_formats_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    assert cli.main(["formats"]) == 0
    text = capsys.readouterr().out
    for one in px.formats():
        found = re.search(rf"^  {re.escape(one.name)} +([-rw]+) +([xo. ]+)  \S", text, re.MULTILINE)
        assert found is not None, one.name
        assert len(found[2].split()) == len(CARRIES)
    assert all(len(line) < 150 for line in text.splitlines())


@pytest.mark.parametrize("columns", [20, 60, 80, 110, 134, 135, 200])
def test_formats_command_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["formats"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= max(columns, 60)
    words = " ".join(text.split())
    for one in px.formats():
        row = re.search(rf"^  {re.escape(one.name)} +([-rw]+) +(([xo.]\s+)+)", text, re.MULTILINE)
        assert row is not None, one.name
        assert len(row[2].split()) == len(CARRIES)
        assert one.note in words
        assert one.written_by in words
    assert all(name in words for name in CARRIES)


def test_formats_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["formats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [asdict(one) for one in px.formats()]


def test_the_document_has_the_table(repository: Path) -> None:
    assert markdown() in (repository / "docs" / "formats.md").read_text()

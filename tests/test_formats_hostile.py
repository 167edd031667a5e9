"""Hostile input: whatever the bytes, a trace or a `TraceError` with its place, in any pieces."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from format_cases import SAMPLES, TEXTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyallocx as px
from pyallocx import _core

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FORMATS = st.sampled_from(sorted(TEXTS))

# Numbers at and beyond the limits, and signs that mean something in one format or another.
HUGE = (
    *("0", "-1", "4294967295", "4294967296", "18446744073709551615", "18446744073709551616"),
    *("0xffffffffffffffff", "0x10000000000000000", "ffffffff", "9" * 400, "0x" + "f" * 400),
)
SIGNS = ("(", ")", "=", ",", "#", "[pid ", "<unfinished ...>", "\r", "\n", "\n\n", "\0", "é", "{")


@st.composite
def mutated(draw: st.DrawFn, sample: bytes) -> bytes:
    """A sample with lines lost, doubled and moved, numbers changed, pieces cut out and put in."""
    lines = sample.split(b"\n")
    chosen = draw(st.lists(st.integers(0, len(lines) - 1), max_size=len(lines) + 4))
    text = b"\n".join(lines[i] for i in sorted(chosen)) if draw(st.booleans()) else sample
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["number", "sign", "cut", "byte"]))
        at = draw(st.integers(0, max(0, len(text) - 1)))
        if kind == "number":
            numbers = list(re.finditer(rb"(0x)?[0-9a-f]+", text))
            if numbers:
                found = numbers[draw(st.integers(0, len(numbers) - 1))]
                other = draw(st.sampled_from(HUGE)).encode()
                text = text[: found.start()] + other + text[found.end() :]
        elif kind == "sign":
            text = text[:at] + draw(st.sampled_from(SIGNS)).encode() + text[at:]
        elif kind == "cut":
            text = text[:at] + text[at + draw(st.integers(1, 40)) :]
        else:
            text = text[:at] + draw(st.binary(min_size=1, max_size=2)) + text[at + 1 :]
    return text


def read(format: str, skip: bool, pieces: list[bytes]) -> object:
    reader = _core.TraceReader(format, skip)
    try:
        for piece in pieces:
            reader.feed(piece)
        reader.finish()
    except px.TraceError as error:
        return str(error)
    columns = {n: c if c is None else np.asarray(c).tolist() for n, c in reader.columns().items()}
    return columns, reader.counts(), reader.threads(), reader.key_names()


@QUICK
@given(data=st.data(), format=FORMATS, of=FORMATS, skip=st.booleans())
def test_a_trace_or_an_error_with_its_line(
    data: st.DataObject, format: str, of: str, skip: bool
) -> None:
    text = data.draw(mutated(TEXTS[of]) | st.binary(max_size=300))
    whole = read(format, skip, [text])
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    edges = [0, *sorted(cuts), len(text)]
    assert read(format, skip, [text[a:b] for a, b in itertools.pairwise(edges)]) == whole
    assert read(format, skip, [text[i : i + 1] for i in range(len(text))]) == whole
    if isinstance(whole, str):
        assert not skip
        line = re.match(r"line (\d+): expected|line (\d+): ", whole)
        assert line is not None
        assert 0 <= int(line[1] or line[2]) <= text.count(b"\n") + 1


@QUICK
@given(data=st.data(), of=st.sampled_from(sorted(SAMPLES)), skip=st.booleans())
def test_files_of_any_bytes(tmp_path: Path, data: st.DataObject, of: str, skip: bool) -> None:
    path = tmp_path / "t"
    path.write_bytes(data.draw(mutated(SAMPLES[of])))
    try:
        trace = px.load(path, on_error="skip" if skip else "raise")
    except px.TraceError as error:
        assert str(error).startswith(str(path))  # noqa: PT017
        return
    # Checked once more by the constructor.
    assert trace == px.Trace(**trace.columns())


@pytest.mark.parametrize("of", sorted(TEXTS))
def test_cut_anywhere(tmp_path: Path, of: str) -> None:
    """A prefix is a trace, or an error; the events of whole lines are those of the whole file."""
    text = TEXTS[of]
    whole = read(of, True, [text])
    assert isinstance(whole, tuple)
    for cut in range(len(text)):
        part = read(of, True, [text[:cut]])
        assert isinstance(part, tuple)
        if of != "minimalloc" and text[cut - 1 : cut] == b"\n":
            count = len(part[0]["op"])
            assert part[0]["op"] == whole[0]["op"][:count]
            assert part[0]["size_bytes"] == whole[0]["size_bytes"][:count]


@pytest.mark.parametrize("of", sorted(TEXTS))
def test_lines_without_end(of: str) -> None:
    reader = _core.TraceReader(of)
    reader.feed(b"a" * 65_536)
    with pytest.raises(px.TraceError, match=r"line 1: expected a line of at most 65536 bytes"):
        reader.feed(b"a" * 10)

"""Raw logs with bytes changed, read as a whole: header, texts, records and what becomes of them.

The fuzzers of csrc/fuzz look at the reader in C; here also at what is made of its answers.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import recording
from hypothesis import given
from hypothesis import strategies as st
from rawlog_bytes import (
    FREE,
    GRANULE,
    HEADER_BYTES,
    MALLOC,
    MAPS,
    MEMALIGN,
    MMAP,
    REALLOC_BEGIN,
    REALLOC_END,
    SITES,
    TSC,
    USABLE,
    USABLE_SIZE,
    Log,
    Record,
    Window,
    windows_of,
)

import pyallocx as px
from pyallocx import recorder

# Where in the header the numbers end and the texts are: parent_file, exe, command.
TEXTS = (144, 400, 416, 4512, 37264)


@pytest.fixture(scope="module")
def handmade() -> bytes:
    """Something of every kind, from two threads, with sites and the text of memory maps."""
    mine = [
        Record(MALLOC, 10, 0x1000, 8, site=0x401000),
        Record(MEMALIGN, 20, 0x2000, 9, align=24, site=0x401010),
        Record(REALLOC_BEGIN, 30, 0x1000, 16),
        Record(REALLOC_END, 40, 0x3000, site=0x501000),
        Record(REALLOC_BEGIN, 50, 0x3000, 2**50),
        Record(REALLOC_END, 60, 0, failed=True, site=0x501000),
        Record(USABLE_SIZE, 70, 0x3000, 24),
        Record(REALLOC_BEGIN, 80, 0x3000, 0),
        Record(REALLOC_END, 90, 0, site=0x401000),
    ]
    other = [
        Record(MMAP, 15, 0x10000, 4096, extra=(3 | 34 << 32,)),
        Record(MALLOC, 45, 0x1000, 5, site=0x900000),
        Record(FREE, 95, 0x2000),
    ]
    text = (
        b"00400000-00500000 r-xp 00000000 08:01 7 /no/such/\xfeprogram\n"
        b"00500000-00600000 r-xp 00000000 08:01 8 /no/such/library.so (deleted)\n"
    )
    windows = windows_of(mine, 0, 1, per_window=4) + windows_of(other, 1, 2, per_window=9)
    log = Log(
        [*windows, Window(text=text)],
        flags=SITES | MAPS | USABLE,
        clock=TSC,
        pairs=(5, 1000, 5 + 4 * 10**8, 1000 + 10**8),
        threads=2,
        exe=b"/usr/bin/app\xe9",
        command=[b"app", b"\xff", b""],
    )
    return log.to_bytes()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the recorder wrote of a program that was really there."""
    try:
        recorder._library()
    except px.UnknownProgram:
        pytest.skip("no recorder for this machine")
    folder = tmp_path_factory.mktemp("recorded")
    environment = recording.environment(folder, flags=SITES | MAPS | USABLE)
    subprocess.run([sys.executable, "-S", "-c", "[0] * 10**5"], env=environment, check=True)
    (path,) = folder.iterdir()
    assert len(px.load(path)) > 1000
    # The first windows will do, up to those of the memory maps; the file is sparse, and long.
    whole = bytearray()
    with path.open("rb") as file:
        whole += file.read(HEADER_BYTES)
        while len(whole) < HEADER_BYTES + 24 * GRANULE:
            whole += file.read(GRANULE)
            (rest,) = struct.unpack_from("<I", whole, len(whole) - GRANULE + 8)
            whole += file.read(max(rest, GRANULE) - GRANULE)
    struct.pack_into("<Q", whole, 80, len(whole))
    return bytes(whole)


def changed(data: st.DataObject, whole: bytes) -> bytes:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    body = bytearray(whole)
    starts = [
        at
        for at in range(HEADER_BYTES, len(body), GRANULE)
        if body[at : at + 8] in (b"AXWINDOW", b"AXMAPSTX")
    ]
    for _ in range(data.draw(st.integers(1, 12))):
        where = rng.randrange(4)
        if where == 0:
            at = rng.randrange(TEXTS[0])  # the numbers of the header
        elif where == 1:
            at = rng.choice(TEXTS) + rng.randrange(-24, 24)
        else:
            at = rng.choice(starts) + min(int(rng.expovariate(0.01)), GRANULE - 1)
        body[min(at, len(body) - 1)] = rng.choice([0, 1, 10, 64, 127, 128, 255, rng.randrange(256)])
    del body[len(body) - rng.choice([0, 0, 0, 1, 40, GRANULE]) :]
    return bytes(body)


def read(whole: bytes, path: Path) -> None:
    """Only a TraceError that names the file comes out, or a trace that can be kept and shown."""
    path.write_bytes(whole)
    for on_error in ("raise", "skip"):
        said = ""
        try:
            trace = px.load(path, on_error=on_error, format="rawlog")
        except px.TraceError as error:
            said = str(error)
        if said:
            assert said.startswith(str(path))
            continue
        trace.summary()
        repr(trace)
        trace._repr_html_().encode()
        kept = path.with_suffix(".npz")
        trace.save(kept)
        assert px.load(kept) == trace
        kept.unlink()


@given(data=st.data())
def test_changed_bytes_of_a_log_made_by_hand(
    data: st.DataObject, handmade: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    read(changed(data, handmade), tmp_path_factory.getbasetemp() / "handmade.axlog")


@given(data=st.data())
def test_changed_bytes_of_a_log_of_the_recorder(
    data: st.DataObject, recorded: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    read(changed(data, recorded), tmp_path_factory.getbasetemp() / "recorded.axlog")


def test_the_logs_are_read_unchanged(handmade: bytes, tmp_path: Path) -> None:
    path = tmp_path / "whole.axlog"
    path.write_bytes(handmade)
    trace = px.load(path)
    assert trace.metadata["dropped"] == {}
    assert {name: len(aside["event"]) for name, aside in trace.asides.items()} == {
        "realloc_begin": 2,
        "failed": 1,
        "asked_align": 1,
        "usable_size": 1,
        "maps": 1,
    }
    assert trace.op.tolist() == [0, 0, 2, 0, 1, 1]


def test_a_log_of_the_recorder_is_read_unchanged(recorded: bytes, tmp_path: Path) -> None:
    path = tmp_path / "whole.axlog"
    path.write_bytes(recorded)
    trace = px.load(path)
    assert trace.metadata["dropped"] == {}
    assert len(trace) > 100
    assert any(name.startswith(("?", "0x")) is False for name in trace.metadata["key_names"])

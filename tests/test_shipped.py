"""The traces that come with the package: they are what the metadata says, small and instructive."""

import platform
import re
import shutil
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest

import pyallocx as px
from pyallocx.trace import OP_ALLOC, OP_FREE, OP_REALLOC

MAX_BYTES_OF_ALL = 400_000

each_trace = pytest.mark.parametrize("name", px.shipped())


def file_of(name):
    return resources.files("pyallocx.data") / f"{name}.npz"


def episodes(trace):
    """Count the times that each free list becomes empty, by the most that it held before.

    A free list holds what was freed of one size, rounded up to 8 bytes, and allocations take from
    it first. A realloc that changes the rounded size is an allocation and then a free.
    """
    length, peak, size_of, counts = {}, {}, {}, {}

    def take(key):
        if length.get(key, 0):
            length[key] -= 1
            if not length[key]:
                counts[peak[key]] = counts.get(peak[key], 0) + 1
                peak[key] = 0

    def give(key):
        length[key] = length.get(key, 0) + 1
        peak[key] = max(peak.get(key, 0), length[key])

    for op, object_, size in zip(
        trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True
    ):
        key = -(-size // 8) * 8
        if op == OP_ALLOC:
            take(key)
            size_of[object_] = key
        elif op == OP_FREE:
            give(size_of.pop(object_))
        elif op == OP_REALLOC and key != size_of[object_]:
            take(key)
            give(size_of[object_])
            size_of[object_] = key
    return counts


def test_names():
    names = px.shipped()
    assert names == ["python3", "sqlite3"]
    names.clear()
    assert px.shipped(), "the caller has a list of its own"
    first = px.shipped()[0]
    assert px.load_shipped().metadata == px.load_shipped(first).metadata


def test_an_unknown_name_is_an_error():
    for name in ("firefox", "../data/python3", ""):
        with pytest.raises(ValueError, match=re.escape(f"one of python3, sqlite3, got {name!r}")):
            px.load_shipped(name)


@each_trace
def test_is_a_trace_of_a_useful_length(name):
    trace = px.load_shipped(name)
    assert 50_000 <= len(trace) <= 250_000
    # Made again from its columns it is validated again.
    assert px.Trace(op=trace.op, object=trace.object, size_bytes=trace.size_bytes) == trace
    assert np.count_nonzero(trace.op == OP_REALLOC) > 500


@each_trace
def test_metadata_is_complete_and_private(name):
    metadata = px.load_shipped(name).metadata
    assert metadata["program"] == name
    assert re.fullmatch(r"3\.\d+\.\d+", metadata["version"])
    assert f"{name} " in metadata["command"]
    assert metadata["workload"].startswith("benchmarks/workloads/")
    assert metadata["machine"]
    assert metadata["libc"].startswith("glibc 2.")
    assert "mtrace" in metadata["recorder"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", metadata["recorded"])
    assert metadata["dropped"] == {}, "the strict reader drops nothing"
    # No path of the machine it was recorded on.
    assert not any(str(value).startswith("/") or " /" in str(value) for value in metadata.values())


def test_files_are_small():
    assert sum(len(file_of(name).read_bytes()) for name in px.shipped()) <= MAX_BYTES_OF_ALL


@each_trace
def test_lists_become_empty_often_and_from_many_lengths(name):
    counts = episodes(px.load_shipped(name))
    assert sum(counts.values()) > 3_000
    assert len(counts) >= 20
    assert max(counts) > 50


def can_record():
    name, version = platform.libc_ver()
    return (
        (name == "glibc" and tuple(map(int, version.split("."))) >= (2, 34))
        and shutil.which("cc") is not None
        and shutil.which("sqlite3", path="/usr/bin:/bin") is not None
    )


@pytest.mark.skipif(
    not can_record(), reason="needs glibc 2.34 or later, a C compiler and the system's sqlite3"
)
def test_anyone_can_record_again(tmp_path, repository):
    script = repository / "benchmarks" / "record_shipped.py"
    subprocess.run([sys.executable, script, "--output", tmp_path, "sqlite3"], check=True)
    again, shipped = px.load(tmp_path / "sqlite3.npz"), px.load_shipped("sqlite3")
    assert again.metadata["command"] == shipped.metadata["command"]
    # Another version of the program allocates otherwise, but does the same work.
    assert 0.2 < len(again) / len(shipped) < 5

"""Code traces of real programs: the numbers that are known of them, and those of made-up ones."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from code_cases import A, F, inferred, kinds, load, shape
from hypothesis import given
from hypothesis import strategies as st

import pyallocx as px
from pyallocx.codetraces.synthetic import EXIT_SIZES


@pytest.fixture(scope="session")
def jit(shared_data: Path) -> Path:
    return shared_data / "jit"


def test_node_log(jit: Path, tmp_path: Path) -> None:
    trace = px.load(jit / "node20-log-code.v8.log.gz")
    summary = trace.summary()
    sizes = trace.size_bytes[trace.op == A]
    assert (summary["allocs"], summary["allocated_bytes"]) == (2425, 6_210_112)
    assert (np.median(sizes), sizes.max()) == (2396, 8400)
    assert trace.metadata["counts"] == {
        "embedded": 2182,
        "bytecode": 2690,
        "deletes_of_unknown": 1,
        "deaths_at_exit": 824,
    }
    assert Counter(kinds(trace)) == {"JS:^": 1221, "JS:*": 1204}
    # Half of the pages are deleted during the run: most code that is overlapped died with them.
    assert inferred(trace) == {"overlap": 184, "deleted_chunk": 1417}
    lines = gzip.decompress((jit / "node20-log-code.v8.log.gz").read_bytes()).split(b"\n")
    kept = b"\n".join(line for line in lines if not line.startswith(b"delete,"))
    assert inferred(load(tmp_path, kept)) == {"overlap": 727}


def test_other_v8_logs(jit: Path) -> None:
    for name, optimised in (("adders", 33), ("two-modules", 32)):
        trace = px.load(jit / f"{name}.v8.log")
        assert Counter(kinds(trace)) == {"RegExp": 4, "LazyCompile:*": optimised}
        assert trace.metadata["counts"]["embedded"] == 1539
        assert "unknown_lines" not in trace.metadata["counts"]


def test_node_perf_map(jit: Path) -> None:
    trace = px.load(jit / "node20-perf.map")
    assert Counter(kinds(trace)) == {
        "Builtin": 1699,
        "BytecodeHandler": 483,
        "JS:^": 1221,
        "JS:*": 1205,
    }
    assert sum(trace.metadata["counts"][kind] for kind in ("embedded", "bytecode")) == 4872
    assert trace.n_objects + trace.metadata["counts"]["bytecode"] == 7298


def test_node_jitdump(jit: Path) -> None:
    trace = px.load(jit / "node20-jitdump.first-records.dump.gz")
    assert trace.n_objects == 1602
    assert trace.metadata["counts"] == {"unwinding_infos": 1603, "embedded": 1602}
    # The same builtins as in the map of another run of the same program, at the same place.
    other = px.load(jit / "node20-perf.map")
    assert (trace.size_bytes == other.size_bytes[:1602]).all()


def test_hotspot_jvmti(jit: Path) -> None:
    path = jit / "hotspot17-jvmti.csv"
    trace = px.load(path)
    assert Counter(kinds(trace)) == {"nmethod": 5581, "stub": 420}
    assert trace.metadata["obtained"]["frees"] == {"seen": 5413, "inferred": {}}
    assert trace.key is not None
    nmethods = trace.key == trace.metadata["key_names"].index("nmethod")
    sizes = trace.size_bytes[nmethods & (trace.op == A)]
    assert (sizes.sum(), np.median(sizes)) == (4_037_424, 704)
    size_of = trace.size_bytes[trace.op == A].astype(np.int64)
    change = np.where(trace.op == A, 1, -1) * size_of[trace.object]
    assert np.cumsum(change[nmethods]).max() == 1_030_104
    # Addresses are not in a trace: what was reused is counted in the file.
    freed, reused = set(), 0
    for line in path.read_text().splitlines():
        fields = line.split(",")
        if fields[0] == "F":
            freed.add(fields[2])
        elif fields[4] == "nmethod":
            reused += fields[2] in freed
    assert reused == 1591


def test_hotspot_log_compilation(jit: Path) -> None:
    trace = px.load(jit / "hotspot17-LogCompilation.log.gz")
    assert trace.n_objects == 367
    assert trace.metadata["counts"] == {"made_not_entrant": 53}
    # Of the whole run 1,424: the file holds the first 367 of its 5,150 nmethods.
    assert np.median(trace.size_bytes) == 1256


def test_hotspot_xlog(jit: Path) -> None:
    trace = px.load(jit / "hotspot25-xlog-codecache.log.gz")
    obtained = trace.metadata["obtained"]
    assert obtained["allocs"]["seen"] == 5430
    assert obtained["frees"] == {"seen": 5119, "inferred": {}}
    assert obtained["sizes"] == {"seen": 0, "inferred": {"growth_of_used_kib": 5422}}


def test_luajit_head(jit: Path) -> None:
    path = jit / "luajit-trace-events.head.csv"
    trace = px.load(path)
    assert trace.n_objects == 2957
    assert trace.metadata["counts"] == {"flushes": 7, "aborts": 36}
    assert Counter(kinds(trace)) == {"root": 2811, "loop": 131, "return": 8, "interpreter": 7}
    assert inferred(trace) == {}
    # What lives between flushes reaches the limit of 256 KiB.
    assert (256 << 10) - 4096 < (trace.summary()["peak_live_bytes"] or 0) <= 256 << 10
    # After a B machine code goes on right below what was there, after an X it starts elsewhere.
    last, between = 0, ""
    for line in path.read_text().splitlines():
        kind, _, *rest = line.split(",")
        if kind != "A":
            between += kind
            continue
        start, size = int(rest[0], 16), int(rest[1])
        if last:
            assert (0 <= last - (start + size) < 4096) == ("X" not in between), line
        last, between = start, ""


# ---- synthetic ----------------------------------------------------------------------------------


@given(
    methods=st.integers(0, 300),
    seed=st.integers(0, 1 << 64).map(lambda n: n >> 1),
    fraction=st.floats(0, 1),
    exits=st.sampled_from([None, 64, EXIT_SIZES]),
)
def test_synthetic_methods(methods: int, seed: int, fraction: float, exits: Any) -> None:
    trace = px.synthesize_code(methods, seed=seed, exit_sizes=exits, unload_fraction=fraction)
    pieces = 1 if exits is None else 2
    frees = round(methods * fraction)
    assert trace.n_objects == methods * pieces
    assert len(trace) == (methods + frees) * pieces
    assert trace.metadata["key_names"] == ["main", "exit"][:pieces]
    assert trace.key is not None
    assert (trace.key == trace.object % pieces).all()
    if pieces == 2:
        # The two pieces of a method come and go together.
        assert (trace.op[::2] == trace.op[1::2]).all()
        assert (trace.object[::2] + 1 == trace.object[1::2]).all()
    assert (trace.size_bytes[trace.op == F] == 0).all()
    assert trace == px.synthesize_code(
        methods, seed=seed, exit_sizes=exits, unload_fraction=fraction
    )


def test_synthetic_sizes_and_moments() -> None:
    trace = px.synthesize_code(20_000, seed=3)
    assert trace.key is not None
    main = trace.size_bytes[(trace.op == A) & (trace.key == 0)]
    exits = trace.size_bytes[(trace.op == A) & (trace.key == 1)]
    assert abs(np.median(main) / 700 - 1) < 0.03
    assert abs(np.median(exits) / 150 - 1) < 0.03
    # Half of them live on at the end, and those that go do not all go at once.
    assert trace.summary()["live_objects_end"] == 20_000
    freed = np.flatnonzero(trace.op == F)
    assert 0.5 < freed.mean() / len(trace) < 0.8
    # Other parameters leave the draws of these alone.
    fewer = px.synthesize_code(20_000, seed=3, exit_sizes=None, unload_fraction=0)
    assert (fewer.size_bytes == main).all()


def test_synthetic_methods_never_change() -> None:
    trace = px.synthesize_code(6, seed=1)
    assert [(op, object) for op, object, _ in shape(trace)] == [
        *[("A", 0), ("A", 1), ("F", 0), ("F", 1), ("A", 2), ("A", 3), ("A", 4), ("A", 5)],
        *[("A", 6), ("A", 7), ("F", 2), ("F", 3), ("A", 8), ("A", 9), ("F", 8), ("F", 9)],
        *[("A", 10), ("A", 11)],
    ]
    assert trace.size_bytes[trace.op == A].tolist() == [
        *[482, 358, 717, 729, 1478, 193, 349, 234, 739, 133, 551, 158]
    ]


def test_synthetic_arguments() -> None:
    for wrong in (
        {"methods": -1},
        {"seed": -1},
        {"unload_fraction": 1.1},
        {"unload_fraction": float("nan")},
        {"sizes": 0},
        {"exit_sizes": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            px.synthesize_code(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sizes must be an integer"):
        px.synthesize_code(sizes="lognormal")  # type: ignore[arg-type]

"""Size classes for real programs: the quadratic solver, and figures measured elsewhere."""

import re

import numpy as np
import pytest

import pyallocx as px

SOLVERS = ("auto", "quadratic", "divide", "price")
SCUDO = {"header_bytes": 16, "largest_bytes": 65552}

# Of section 2.5 of the specification, 32 classes: bits, what the greedy tool wastes, the optimum.
MEASURED = {
    "cc1plus-cum": ((5, 52724554, 50563658), (7, 51061401, 48802538)),
    "clang-cum": ((5, 38579516, 38579516), (7, 37557894, 37288068)),
    "git-cum": ((5, 40333114, 39260954), (7, 38812336, 36906064)),
    "python3-19870.cum": ((5, 86629432, 86356120), (7, 44081724, 43749704)),
    "scudo19-clang.malloc_info": ((5, 912836, 888836), (7, 783652, 772020)),
    "sqlite3-cum": ((5, 11041561, 11040185), (7, 4544145, 4527121)),
}
# The same with every multiple of 16 as a candidate.
MEASURED_ANY = {
    "cc1plus-cum": 48104826,
    "clang-cum": 36737144,
    "git-cum": 35772320,
    "python3-19870.cum": 42964536,
    "scudo19-clang.malloc_info": 718916,
    "sqlite3-cum": 2996169,
}


# Of section 3: wastage in % of the requested bytes, sizes up to 64 KiB, neither header nor cap.
PROGRAMS = ("cc1plus-cum", "clang-cum", "clang-peak", "python3-19870.cum", "git-cum", "sqlite3-cum")
LEAGUE = {
    "glibc": (1.31, 1.42, 1.33, 2.88, 0.56, 1.74),
    "jemalloc": (5.24, 3.55, 3.43, 15.48, 5.52, 13.23),
    "gperftools": (4.03, 2.30, 1.88, 6.56, 8.07, 10.20),
    "google-tcmalloc": (6.34, 5.23, 2.91, 8.09, 10.01, 12.03),
    "google-tcmalloc-legacy": (3.11, 2.27, 1.46, 5.18, 3.67, 8.23),
    "mimalloc": (5.24, 3.55, 3.43, 15.48, 5.52, 13.23),
    # The specification has 9.58 for sqlite3, where every other program agrees; the observed list
    # wastes what this one does.
    "go": (3.58, 3.19, 1.73, 6.44, 7.85, 9.50),
    "rpmalloc": (4.04, 3.09, 1.44, 15.41, 4.98, 13.23),
    "musl-mallocng": (7.23, 10.56, 12.64, 7.76, 12.06, 11.10),
    "scudo-default-19": (8.20, 17.38, 20.70, 19.13, 15.63, 14.74),
    "scudo-android64-19": (9.74, 7.55, 3.73, 37.41, 13.79, 15.25),
}
BEST = {
    16: (13.92, 11.48, 3.88, 4.46, 10.86, 2.15),
    32: (5.78, 3.06, 1.34, 3.31, 4.38, 1.02),
    47: (3.63, 1.48, 0.93, 3.07, 2.76, 0.87),
    64: (2.72, 0.91, 0.77, 3.00, 1.87, 0.84),
}


def read_profile(path):
    """Read a profile in the form of scudo's malloc_info."""
    profile = {}
    for size, count in re.findall(r'size="(\d+)" count="(\d+)"', path.read_text()):
        profile[int(size)] = profile.get(int(size), 0) + int(count)
    return profile


@pytest.fixture(scope="module")
def profiles(shared_data):
    paths = sorted((shared_data / "sizeclass" / "profiles").glob("*.xml"))
    assert len(paths) >= 7
    return {path.name.removesuffix(".xml"): read_profile(path) for path in paths}


# Real programs


@pytest.mark.parametrize("bits", [5, 7])
@pytest.mark.parametrize("classes", [16, 32, 64])
def test_real_profiles(profiles, classes, bits):
    for name, profile in profiles.items():
        found = {m: px.fit(profile, classes, bits=bits, method=m, **SCUDO) for m in SOLVERS}
        oracle = found["quadratic"].wastage_bytes
        for method, best in found.items():
            assert best.exact
            assert (best.wastage_bytes, best.gap) == (oracle, 0), (name, method)
            assert len(best.classes) == classes
            assert best.table.wastage_bytes == oracle
        greedy = px.fit(profile, classes, bits=bits, method="greedy", **SCUDO)
        assert greedy.lower_bound_bytes == oracle <= greedy.wastage_bytes <= 1.1 * oracle


def test_measured_elsewhere(profiles):
    for name, rows in MEASURED.items():
        for bits, tool, optimum in rows:
            best = px.fit(profiles[name], bits=bits, **SCUDO)
            greedy = px.fit(profiles[name], bits=bits, method="greedy", **SCUDO)
            assert (greedy.wastage_bytes, best.wastage_bytes) == (tool, optimum), (name, bits)
        best = px.fit(profiles[name], **SCUDO)
        assert best.wastage_bytes == MEASURED_ANY[name]


def test_league_measured_elsewhere(profiles):
    small = [{s: n for s, n in profiles[name].items() if s <= 65536} for name in PROGRAMS]
    for preset, percents in LEAGUE.items():
        table = px.preset_classes(preset)
        costs = [px.wastage(table, profile, page_cap=None) for profile in small]
        assert [round(cost.percent, 2) for cost in costs] == list(percents), preset
        assert not any(cost.excluded_count for cost in costs)
    for k, percents in BEST.items():
        fits = [px.fit(p, k, largest_bytes=65536, page_cap=None).table for p in small]
        assert [round(cost.percent, 2) for cost in fits] == list(percents), k


def test_real_curve(profiles):
    for profile in profiles.values():
        best = px.fit(profile, 256, bits=7, **SCUDO)
        curve = best.curve(256)
        wasted = dict(zip(curve["classes"].tolist(), curve["wastage_bytes"].tolist(), strict=True))
        saved = curve["saved_bytes"][1:]
        assert (np.diff(saved) <= 0).all()  # convex
        assert wasted[len(best.classes)] == best.wastage_bytes
        for k in (1, 2, 3, 31, 32, 33, 64, len(wasted)):
            assert wasted[k] == px.fit(profile, k, bits=7, **SCUDO).wastage_bytes


def test_held_out_is_worse(profiles):
    chosen = {n: p for n, p in profiles.items() if n.endswith("cum")}
    result = px.cross_validate(
        list(chosen.values()), 45, largest_bytes=65536, names=list(chosen), draws=30, progress=False
    )
    for row in result.rows:
        assert row.own_percent <= row.in_sample_percent < row.held_out_percent
        assert row.low_percent <= row.high_percent
        assert row.program in repr(result)
    assert result.in_sample_percent < result.held_out_percent

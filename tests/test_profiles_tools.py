"""Profiles of tools that watch other programs: DHAT, bpftrace, bcc's memleak."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyallocx as px

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def load(tmp_path: Path, data: str | bytes, **options: Any) -> px.Profile:
    path = tmp_path / "p"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return px.load_profile(path, **options)


def as_dict(profile: px.Profile) -> dict[int, float]:
    return dict(zip(profile.sizes.tolist(), profile.counts.tolist(), strict=True))


def refused(tmp_path: Path, data: str, message: str, **options: Any) -> None:
    with pytest.raises(px.TraceError) as caught:
        load(tmp_path, data, **options)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'p'}: ")


# ---- dhat ---------------------------------------------------------------------------------------


def dhat(*points: dict[str, Any], **more: Any) -> str:
    none = dict.fromkeys(("tb", "tbk", "gb", "gbk", "eb", "ebk"), 0)
    document = {"dhatFileVersion": 2, "mode": "heap", "pps": [{**none, **p} for p in points]}
    return json.dumps({**document, **more})


def test_dhat_keeps_blocks_and_bytes(tmp_path: Path) -> None:
    one = {"tb": 35, "tbk": 10, "gb": 12, "gbk": 3, "eb": 5, "ebk": 5}
    two = {"tb": 40, "tbk": 10}
    profile = load(tmp_path, dhat(one, two))
    assert as_dict(profile) == {3: 5, 4: 15}
    assert {k: profile.metadata[k] for k in ("format", "weight", "sizes", "points")} == {
        "format": "dhat", "weight": "count", "sizes": "means of call sites", "points": 2,
    }  # fmt: skip
    assert profile.metadata["points_at_mean"] == 1
    peak = load(tmp_path, dhat(one, two), weight="peak")
    assert as_dict(peak) == {4: 3}
    assert "points_at_mean" not in peak.metadata
    assert as_dict(load(tmp_path, dhat(one, two), weight="end")) == {1: 5}
    assert as_dict(load(tmp_path, dhat({"tb": 0, "tbk": 4}))) == {0: 4}
    assert as_dict(load(tmp_path, dhat(one, mode="rust-heap"))) == {3: 5, 4: 5}


@QUICK
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 1000)), min_size=1, max_size=20))
def test_the_sums_of_dhat_are_exact(tmp_path: Path, points: list[tuple[int, int]]) -> None:
    profile = load(tmp_path, dhat(*({"tb": size, "tbk": count} for size, count in points)))
    found = as_dict(profile)
    assert sum(found.values()) == sum(count for _, count in points)
    assert sum(size * count for size, count in found.items()) == sum(size for size, _ in points)
    low = min(size // count for size, count in points)
    high = max(-(-size // count) for size, count in points)
    assert low <= min(found) <= max(found) <= high


def test_dhat_is_strict(tmp_path: Path) -> None:
    good = {"tb": 8, "tbk": 1}
    refused(tmp_path, dhat(good, dhatFileVersion=3), "dhatFileVersion: expected 2, found 3")
    refused(tmp_path, dhat(good, mode="copy"), "mode: expected 'heap' or 'rust-heap'")
    refused(tmp_path, dhat({"tb": 8}), "pps[0]: expected no bytes in no blocks, found 8")
    refused(tmp_path, dhat({"tb": 8, "tbk": 1.5}), "pps[0].tbk: expected a whole number")
    refused(tmp_path, dhat({"tb": True, "tbk": 1}), "pps[0].tb: expected a whole number")
    refused(tmp_path, dhat(good, {"tb": -8, "tbk": 1}), "pps[1].tb: expected a whole number")
    refused(tmp_path, dhat({"tb": 2**49, "tbk": 1}), "pps[0]: expected a size of at most 2**48")
    refused(tmp_path, dhat(pps=3), "pps: expected a list")
    refused(tmp_path, dhat(), "it holds no size")
    refused(tmp_path, dhat(good), "no program point has a block of weight 'end'", weight="end")
    refused(tmp_path, dhat(good)[:-3], "expected JSON")
    twice = dhat(good).replace('"tb": 8', '"tb": 9, "tb": 8')
    refused(tmp_path, twice, "'tb' is there twice")
    with pytest.raises(ValueError, match="carries no weight 'byte_time'"):
        load(tmp_path, dhat(good), weight="byte_time")


def test_dhat_of_the_tool(tmp_path: Path, shared_data: Path) -> None:
    path = shared_data / "traces" / "formats" / "dhat.json"
    assert as_dict(px.load_profile(path)) == {3512: 500, 3513: 500, 4096: 1}
    assert as_dict(px.load_profile(path, weight="end")) == {3516: 500}


@pytest.mark.slow
def test_dhat_that_valgrind_writes_now(tmp_path: Path) -> None:
    if shutil.which("valgrind") is None or shutil.which("cc") is None:
        pytest.skip("no valgrind or no cc")
    source = tmp_path / "a.c"
    source.write_text(
        "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 7; i++) "
        "{ void *volatile p = malloc(1234); if (i) free(p); } return 0; }\n"
    )
    subprocess.run(["cc", "-O0", "-o", tmp_path / "a", source], check=True)
    done = subprocess.run(
        ["valgrind", "--tool=dhat", f"--dhat-out-file={tmp_path / 'out'}", tmp_path / "a"],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("valgrind has no dhat here")
    assert as_dict(px.load_profile(tmp_path / "out"))[1234] == 7
    assert as_dict(px.load_profile(tmp_path / "out", weight="end"))[1234] == 1


# ---- bpftrace -----------------------------------------------------------------------------------

HIST = """Attaching 1 probe...


@bytes[git]:
[0]                    5 |@@                         |
[1]                    2 |@                          |
[2, 4)                 0 |                           |
[16, 32)              12 |@@@@                       |
[1K, 2K)               1 |                           |

@bytes[sh, 7]:
[16, 32)               3 |@@@@                       |
[4M, 8M)               1 |@@@@                       |
"""


def test_bpftrace_puts_ranges_at_their_largest(tmp_path: Path) -> None:
    profile = load(tmp_path, HIST)
    assert as_dict(profile) == {0: 5, 1: 2, 31: 15, 2047: 1, 8 * 2**20 - 1: 1}
    about = dict(profile.metadata)
    assert about["ranges_at_upper_end"] == 4
    assert (about["sizes"], about["weight"]) == ("upper ends of ranges", "as written")


def test_bpftrace_lhist_and_maps(tmp_path: Path) -> None:
    text = "@: \n[0, 100)   4 |@@@|\n[100, 200)   1 |@ |\n(..., 0)   0 ||\n"
    assert as_dict(load(tmp_path, text)) == {99: 4, 199: 1}
    text = "@[48]: 12\n@[16]: 3\n@[0]: 1\n"
    profile = load(tmp_path, text.replace("\n", "\r\n"))
    assert as_dict(profile) == {48: 12, 16: 3, 0: 1}
    assert profile.metadata["sizes"] == "as written"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@: \n[8, 16)  4 |@|\n[16, ...)  1 |@|\n", "line 3: expected an upper end"),
        ("@: \n(..., 0)  4 |@|\n", "line 2: expected sizes of at least 0"),
        ("@: \n[-2, -1)  4 |@|\n", "line 2: expected sizes of at least 0"),
        ("@: \n[-2]  4 |@|\n", "line 2: expected sizes of at least 0"),
        ("@: \n[16, 8)  4 |@|\n", "line 2: expected a range that ends above"),
        (
            "@a: \n[8, 16)  4 |@|\n\n@b: \n[8, 16)  4 |@|\n",
            "line 4: expected one map in the file, @a",
        ),
        (
            "@a: \n[8, 16)  4 |@|\n\n@a: \n[8, 16)  4 |@|\n",
            "line 4: expected each map and key once",
        ),
        ("@[8]: 4\n@[8]: 5\n", "line 2: expected each map and key once"),
        ("@: \n[8, 16)  4 |@|\n@[8]: 5\n", "line 3: expected a histogram, as before"),
        ("@[git]: 4\n", "line 1: expected one size as the key"),
        ("@[git, 48]: 4\n", "line 1: expected one size as the key"),
        ("@[48]: 0\n", "line 1: expected a count of at least 1"),
        ("@: \n[8, 16)  4 |@|\n\n[8, 16)  4 |@|\n", "line 4: expected '[LOW, HIGH)"),
        ("@: \n[8, 16)  4\n", "line 2: expected '[LOW, HIGH)"),
        ("@: \n[8, 16)  4 |@|\nLost 3 events\n", "line 3"),
        ("@: \n[1E, 2E)  4 |@|\n", "line 2: expected a size of at most 2**48"),
        ("@: \n", "it holds no size"),
        ("@: \n[8, 16)  0 | |\n", "it holds no size"),
    ],
)
def test_bpftrace_is_strict(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message)


# ---- memleak ------------------------------------------------------------------------------------

REPORT = """Attaching to pid 5193, Ctrl+C to quit.
[11:16:33] Top 2 stacks with outstanding allocations:
\t999 bytes in 1 allocations from stack
\t\tmain+0x6d [allocs]
[11:16:34] Top 2 stacks with outstanding allocations:
\t81 bytes in 5 allocations from stack
\t\t0x00007f1 main+0x6d [allocs]
\t\t__libc_start_main+0xf0 [libc-2.21.so]
\t48 bytes in 1 allocations from stack
"""


def test_memleak_reads_the_last_report(tmp_path: Path) -> None:
    profile = load(tmp_path, REPORT)
    assert as_dict(profile) == {16: 4, 17: 1, 48: 1}
    assert load(tmp_path, REPORT, weight="count") == profile
    about = {
        k: profile.metadata[k] for k in ("weight", "sizes", "reports", "top", "stacks_at_mean")
    }
    assert about == {
        "weight": "end", "sizes": "means of call sites", "reports": 2, "top": 2,
        "stacks_at_mean": 1,
    }  # fmt: skip


def test_memleak_prefers_blocks_to_stacks(tmp_path: Path) -> None:
    blocks = "\taddr = 948cd0 size = 16\n\taddr = 948d10 size = 65\n"
    profile = load(tmp_path, REPORT.replace("\t81", f"{blocks}\t81"))
    assert as_dict(profile) == {16: 1, 65: 1}
    assert profile.metadata["sizes"] == "requests"
    # Those of a report before the last do not count.
    again = load(tmp_path, REPORT.replace("\t999", f"{blocks}\t999"))
    assert as_dict(again) == as_dict(load(tmp_path, REPORT))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\t48 bytes in 1", "\t48 bytes in 0", "line 9: expected a count of at least 1"),
        ("\t48 bytes", "48 blocks", "line 9: expected 'N bytes in M allocations"),
        ("[11:16:33]", "garbage\n[11:16:33]", "expected a profile"),
    ],
)
def test_memleak_is_strict(tmp_path: Path, old: str, new: str, message: str) -> None:
    refused(tmp_path, REPORT.replace(old, new), message)


def test_memleak_without_a_report(tmp_path: Path) -> None:
    text = "Attaching to pid 5193, Ctrl+C to quit.\n"
    refused(tmp_path, text, "expected a report, found the end", format="memleak")
    none = text + "[11:16:33] Top 10 stacks with outstanding allocations:\n"
    refused(tmp_path, none, "it holds no size")

"""What the recorder writes: every call, once, as asked, in an order that is possible."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
import rawlog_model as raw
import recording


def told(output: str) -> dict[str, int]:
    return {line.split()[0]: int(line.split()[1]) for line in output.splitlines() if " " in line}


def test_counts_are_those_of_the_program_itself(tmp_path: Path) -> None:
    output, (log,) = recording.run(tmp_path, recording.program("counts.c"), flags=raw.USABLE)
    wanted = told(output)
    counts = Counter(record.name for record in log.merged())
    for name in set(wanted) - {"live", "failed", "free_null"}:
        assert counts[name] == wanted[name], name
    found = recording.flawless(log)
    assert found.failed == wanted["failed"]
    assert log.frees_of_null == wanted["free_null"]
    line = output.splitlines()[-1].split()
    assert [len(found.live), found.live_bytes] == [int(line[1]), int(line[2])]
    assert (log.lost, log.header.cut, log.header.ended, log.header.threads) == (0, 0, 1, 1)


def test_calls_are_recorded_as_asked(tmp_path: Path) -> None:
    _, (log,) = recording.run(tmp_path, recording.program("counts.c"), flags=raw.USABLE)
    by_kind: dict[int, list[raw.Record]] = {}
    for record in log.merged():
        by_kind.setdefault(record.kind, []).append(record)
    assert {r.align for r in by_kind[raw.POSIX_MEMALIGN]} == {64}
    assert {r.align for r in by_kind[raw.ALIGNED_ALLOC]} == {256}
    assert {r.align for r in by_kind[raw.MEMALIGN]} == {48}
    assert all(r.wide for r in by_kind[raw.MEMALIGN])
    assert {r.align for r in by_kind[raw.VALLOC] + by_kind[raw.PVALLOC]} == {1}
    overflown = [r for r in by_kind[raw.CALLOC] if r.failed]
    assert overflown
    assert {r.size for r in overflown} == {2**64 - 1}
    asked = {r.size for r in by_kind[raw.REALLOC_BEGIN] + by_kind[raw.REALLOC] if r.size >= 2**32}
    assert asked == {(2**64 - 1) // 2}


def test_times_and_the_header(tmp_path: Path) -> None:
    program = recording.program("counts.c")
    _, (log,) = recording.run(tmp_path, program, "3000")
    header = log.header
    assert log.path.name == f"pyallocx-{header.pid}-0.axlog"
    assert header.command == f"{program}\0003000\0".encode()
    assert Path(header.exe.decode()).samefile(program)
    assert header.stamp1 > header.stamp0
    assert header.mono1_ns > header.mono0_ns
    merged = log.merged()
    assert merged[-1].stamp < header.stamp1
    assert header.own_malloc == header.forks == header.exit_status_known == header.stop == 0
    assert sum(size for _, size, _ in log.windows) == header.next - raw.HEADER_BYTES


def test_sites_are_the_callers(tmp_path: Path) -> None:
    _, (log,) = recording.run(tmp_path, recording.program("counts.c"), flags=raw.SITES | raw.USABLE)
    recording.flawless(log)
    assert len(log.maps) == 2  # at the start and at the end
    ranges = []
    for line in log.maps[-1].splitlines():
        fields = line.split()
        if fields[-1].endswith("/counts") and "x" in fields[1]:
            ranges.append([int(x, 16) for x in fields[0].split("-")])
    sites = {r.site for r in log.merged() if r.kind in raw.ALLOCS or r.kind == raw.REALLOC_END}
    assert len(sites) >= 11
    for site in sites:
        assert site is not None
        assert any(low <= site < high for low, high in ranges)
    assert all(r.site is None for r in log.merged() if r.kind in (raw.FREE, raw.USABLE_SIZE))


def test_mappings(tmp_path: Path) -> None:
    output, (log,) = recording.run(tmp_path, recording.program("maps.c"), flags=raw.MAPS)
    code, moved, refused = map(int, output.split())
    found = [r for r in log.merged() if r.kind >= raw.MMAP]
    assert refused == 1
    assert [(r.kind, r.failed, r.address, r.size, r.extra) for r in found] == [
        (raw.MMAP, False, code, 1 << 20, (3 | 0x22 << 32,)),
        (raw.MPROTECT, False, code, 1 << 20, (5,)),
        (raw.MREMAP, False, moved, 4 << 20, (code, 1 << 20)),
        (raw.MMAP, True, 0, 0, (1 | 0x22 << 32,)),
        (raw.MUNMAP, False, moved, 4 << 20, ()),
    ]
    _, (log,) = recording.run(tmp_path / "without", recording.program("maps.c"))
    assert log.count(raw.MMAP, raw.MUNMAP, raw.MPROTECT, raw.MREMAP) == 0


def test_new_and_delete_are_recorded_once_as_malloc(tmp_path: Path) -> None:
    output, (log,) = recording.run(tmp_path, recording.program("things.cpp"))
    found = recording.flawless(log)
    assert log.count(raw.NEW, raw.DELETE) == 0
    aligned = [r for r in log.merged() if r.kind == raw.ALIGNED_ALLOC]
    assert Counter(r.align for r in aligned) == {128: 200, 64: 100}
    assert told(output) == {"made": 700, "thrown": 10}
    assert log.count(raw.MALLOC) >= 400 + 4 + 2
    assert found.failed == 10
    # What the static objects own has gone with them, after main.
    sizes = [r.size for r in found.live.values()]
    assert 4000 not in sizes
    assert 500 not in sizes
    assert [r.size for r in log.merged()].count(77) >= 2


def test_the_site_of_new_is_its_caller(tmp_path: Path) -> None:
    program = recording.program("things.cpp")
    _, (log,) = recording.run(tmp_path, program, flags=raw.SITES)
    recording.flawless(log)
    ours, library = [], []
    for line in log.maps[-1].splitlines():
        fields = line.split()
        low, high = (int(x, 16) for x in fields[0].split("-"))
        (ours if fields[-1] == str(program) else library).append((low, high))
    sites = [r.site for r in log.merged() if r.kind == raw.ALIGNED_ALLOC]
    assert len(sites) == 300
    assert len(set(sites)) == 3
    assert all(any(low <= (site or 0) < high for low, high in ours) for site in sites)


@pytest.mark.parametrize("flags", [0, raw.SITES])
def test_a_plugin_with_a_c_plus_plus_library_of_its_own(tmp_path: Path, flags: int) -> None:
    plugin = recording.program("plugin.cpp", "-shared", "-fPIC", name="plugin.so")
    output, (log,) = recording.run(
        tmp_path, recording.program("loads_plugin.c"), plugin, flags=flags
    )
    assert output == "ok\n"
    recording.flawless(log)
    assert [r.size for r in log.merged() if r.kind == raw.MALLOC].count(201) >= 150
    if flags:
        assert len(log.maps) == 5
        assert sum("plugin.so" in text for text in log.maps) >= 3


@pytest.mark.parametrize(
    "allocator", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"]
)
def test_allocator_libraries(tmp_path: Path, allocator: str) -> None:
    tried = subprocess.run(["cat"], env={"LD_PRELOAD": allocator}, input=b"", capture_output=True)
    if tried.stderr:
        pytest.skip(f"no {allocator}")
    output, (log,) = recording.run(
        tmp_path, recording.program("counts.c"), "20000", "other", preload_too=allocator
    )
    found = recording.flawless(log)
    wanted = told(output)
    assert log.count(raw.MALLOC) - wanted["malloc"] in (0, 1)  # a C++ library's reserve
    assert log.count(raw.FREE) == wanted["free"]
    assert found.failed == wanted["failed"]
    _, (log,) = recording.run(
        tmp_path / "new", recording.program("things.cpp"), "no exceptions", preload_too=allocator
    )
    recording.flawless(log)
    assert log.count(raw.NEW) >= 700
    assert log.count(raw.NEW) - log.count(raw.DELETE) == len(
        [r for r in recording.flawless(log).live.values() if r.kind == raw.NEW]
    )


def test_an_allocator_that_calls_itself_is_recorded_once(tmp_path: Path) -> None:
    allocator = recording.program(
        "own_malloc.c", "-DLIBRARY", "-O2", "-shared", "-fPIC", name="own.so"
    )
    output, (log,) = recording.run(
        tmp_path, recording.program("counts.c"), "5000", "other", preload_too=str(allocator)
    )
    wanted = told(output)
    recording.flawless(log)
    counts = Counter(record.name for record in log.merged())
    for name in ("malloc", "calloc", "realloc", "memalign", "free", "realloc_begin"):
        assert counts[name] == wanted[name], name


def test_a_malloc_of_the_programs_own_is_noticed(tmp_path: Path) -> None:
    program = recording.program("own_malloc.c", "-rdynamic")
    output, (log,) = recording.run(tmp_path, program)
    assert output == "ok\n"
    assert log.header.own_malloc == 1
    assert log.count(raw.MALLOC, raw.REALLOC_BEGIN) == 0


def test_a_program_at_a_fixed_place_has_none_of_its_own(tmp_path: Path) -> None:
    # It refers to malloc by a jump of its own, which then is what everybody finds.
    program = recording.program("counts.c", "-no-pie", "-fno-pie", "-DFIXED", name="fixed")
    _, (log,) = recording.run(tmp_path, program, "2000")
    assert log.header.own_malloc == 0
    recording.flawless(log)


def test_only_children_of_the_launcher(tmp_path: Path) -> None:
    program = recording.program("counts.c")
    script = f"{program} 100 >/dev/null; {program} 100 >/dev/null"
    # The launcher is this process, which is the shell's parent and not the programs'.
    _, logs = recording.run(tmp_path, "sh", "-c", script, parent=__import__("os").getpid())
    assert [Path(log.header.exe.decode()).name in ("dash", "bash", "sh") for log in logs] == [True]
    assert logs[0].header.children_not_recorded == logs[0].header.forks
    _, none = recording.run(tmp_path / "other", program, "100", parent=1)
    assert none == []
    _, all_of_them = recording.run(tmp_path / "all", "sh", "-c", script)
    assert sum(log.header.exe.endswith(b"/counts") for log in all_of_them) == 2


def test_a_limit_cuts_cleanly(tmp_path: Path) -> None:
    program = recording.program("counts.c")
    whole_output, (whole,) = recording.run(tmp_path / "whole", program)
    output, (log,) = recording.run(tmp_path, program, max_bytes=262144)
    assert output == whole_output
    assert log.header.cut == 1
    assert log.header.next <= 262144
    assert log.path.stat().st_size <= 262144
    kept = log.merged()
    recording.flawless(log)
    assert len(kept) + log.lost == len(whole.merged())
    names = [r.name for r in whole.merged()]
    assert [r.name for r in kept] == names[: len(kept)]
    assert len(kept) > 9000


@pytest.mark.parametrize("max_bytes", [1, 65536, 65537, 81920])
def test_a_limit_with_hardly_any_room(tmp_path: Path, max_bytes: int) -> None:
    program = recording.program("counts.c")
    _, (log,) = recording.run(tmp_path, program, "2000", max_bytes=max_bytes)
    assert log.header.cut == 1
    assert log.lost > 0
    recording.flawless(log)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    output, logs = recording.run(tmp_path, recording.program("counts.c"), "2000")
    nowhere = recording.environment(tmp_path / "nowhere")
    done = subprocess.run(
        [recording.program("counts.c"), "2000"], env=nowhere, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")
    assert len(logs) == 1

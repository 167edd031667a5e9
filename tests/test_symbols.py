"""Names of code addresses, from ELF files that are whole, stripped, replaced or damaged."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyallocx._symbols import (
    Mapping,
    SymbolError,
    Symbols,
    demangled,
    name_sites,
    parse_maps,
)

cc = shutil.which("cc")
tools = pytest.mark.skipif(
    None in (cc, shutil.which("nm"), shutil.which("objcopy")), reason="no compiler is installed"
)

SOURCE = """
static __attribute__((noinline, used)) int hidden(int x) { return x * 3; }
__attribute__((noinline)) int shown(int x) { return hidden(x) + 1; }
int _ZN3one3twoEi(int x) { return x - 1; }
int main(int argc, char **argv) { return shown(argc) + _ZN3one3twoEi(argc); }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("elf")
    (directory / "a.c").write_text(SOURCE)
    words = [str(cc), "-O1", "-rdynamic", "-Wl,--build-id", "-o", "app", "a.c"]
    subprocess.run(words, cwd=directory, check=True)
    return directory / "app"


def addresses(path: Path) -> dict[str, tuple[int, int]]:
    """What nm says: name to address and size."""
    out = subprocess.run(["nm", "-S", str(path)], capture_output=True, text=True, check=True)
    found = re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tT] (\w+)$", out.stdout, re.MULTILINE)
    return {name: (int(at, 16), int(size, 16)) for at, size, name in found}


def code_mapping(path: Path, base: int) -> Mapping:
    """Where the loader puts the code."""
    out = subprocess.run(["readelf", "-lW", str(path)], capture_output=True, text=True, check=True)
    loads = re.findall(r"LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+) 0x\w+ R E", out.stdout)
    offset, virtual, size = (int(word, 16) for word in loads[0])
    return Mapping(base + virtual, base + virtual + size, True, offset, str(path))


@tools
def test_functions_are_found_by_what_is_in_them(built: Path) -> None:
    base = 0x555500000000
    mapping = code_mapping(built, base)
    for name, (at, size) in addresses(built).items():
        if name not in ("main", "shown", "hidden"):
            continue
        # A return address: the call before it is in the function.
        sites = [base + at + 1, base + at + size]
        assert name_sites(sites, [[mapping]]) == [
            f"{name}+0x1 (app)",
            f"{name}+0x{size:x} (app)",
        ]
    at, _ = addresses(built)["_ZN3one3twoEi"]
    plain = name_sites([base + at + 2], [[mapping]], cxx=False)
    assert plain == ["_ZN3one3twoEi+0x2 (app)"]
    if shutil.which("c++filt"):
        assert name_sites([base + at + 2], [[mapping]]) == ["one::two+0x2 (app)"]


@tools
def test_a_stripped_file_has_exported_names_and_those_of_its_debug_file(
    built: Path, tmp_path: Path
) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["objcopy", "--strip-all", str(built), str(stripped)], check=True)
    found = {name: at for name, (at, _) in addresses(built).items()}
    mapping = code_mapping(stripped, 0)
    low = {name: at - mapping.start + mapping.offset for name, at in found.items()}
    bare = Symbols(str(stripped), debug_directory=str(tmp_path))
    assert bare.find(low["shown"] + 1) == ("shown", 1)
    assert bare.find(low["hidden"] + 1) is None
    notes = subprocess.run(
        ["readelf", "-nW", str(built)], capture_output=True, text=True, check=True
    )
    build_id = re.search(r"Build ID: (\w+)", notes.stdout)
    assert build_id is not None
    debug = tmp_path / build_id[1][:2] / f"{build_id[1][2:]}.debug"
    debug.parent.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", str(built), str(debug)], check=True)
    full = Symbols(str(stripped), debug_directory=str(tmp_path))
    assert full.find(low["hidden"] + 1) == ("hidden", 1)
    assert full.find(1 << 40) is None


def test_addresses_without_a_name(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no ELF file")
    maps = [
        Mapping(0x1000, 0x2000, True, 0x500, str(text)),
        Mapping(0x3000, 0x4000, True, 0, "/nowhere/lib.so (deleted)"),
        Mapping(0x5000, 0x6000, True, 0, ""),
        Mapping(0x7000, 0x8000, True, 0, "[vdso]"),
        Mapping(0x9000, 0xA000, False, 0, str(text)),
    ]
    sites = [0, 0x1010, 0x3001, 0x5004, 0x7008, 0x9001, 0x2000, 0x2001, 0xFFFF]
    assert name_sites(sites, [maps]) == [
        "unknown",
        "text+0x510",
        "lib.so+0x1",
        "anonymous+0x4",
        "[vdso]+0x8",
        "0x9001",
        "text+0x1500",
        "0x2001",
        "0xffff",
    ]
    assert name_sites([5], []) == ["0x5"]
    # The newest map that has the address counts.
    newer = [Mapping(0x1000, 0x2000, True, 0, "/nowhere/other")]
    assert name_sites([0x1010, 0x3001], [maps, newer]) == ["other+0x10", "lib.so+0x1"]


def test_maps_are_read() -> None:
    text = (
        b"00400000-00401000 r-xp 00002000 fd:01 123      /a b/app\n"
        b"nonsense\n"
        b"7f00-7f10 rw-p 00000000 00:00 0 \n"
    )
    assert parse_maps(text) == [
        Mapping(0x400000, 0x401000, True, 0x2000, "/a b/app"),
        Mapping(0x7F00, 0x7F10, False, 0, ""),
    ]


def test_demangling_is_no_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert demangled(["_Z1fv", "main"]) == ["_Z1fv", "main"]


@tools
@given(seed=st.integers(0, 2**32))
def test_damaged_files_cost_names_only(seed: int, built: Path) -> None:
    rng = random.Random(seed)
    body = bytearray(built.read_bytes())
    for _ in range(rng.randrange(1, 6)):
        area = rng.choice([64, 64, 600, len(body)])
        at = rng.randrange(min(area, len(body)))
        body[at] = rng.randrange(256)
    if rng.random() < 0.3:
        del body[rng.randrange(len(body)) :]
    broken = built.with_name("broken")
    broken.write_bytes(body)
    with contextlib.suppress(SymbolError):
        symbols = Symbols(str(broken))
        for offset in (0, 64, 4400, 1 << 63):
            symbols.find(offset)

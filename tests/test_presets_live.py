"""Presets against the allocators that are installed here, each preloaded into a process."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pyallocx.presets import preset_classes

OBSERVER = Path(__file__).with_name("observe_malloc.py")
LIBRARIES = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
LIMIT = 262144

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sys.maxsize < 2**32, reason="64-bit Linux only"
)


def find(package, *patterns):
    """Return the first library that fits, with its links followed, or skip."""
    for pattern in patterns:
        found = sorted(Path("/").glob(pattern.removeprefix("/")))
        if found:
            return found[-1].resolve()
    return pytest.skip(f"{package} is not installed")


def shared(package, name):
    return find(package, *(f"{folder}/{name}" for folder in LIBRARIES))


def observe(library, *words, **environment):
    # Nothing that the caller's environment says about an allocator counts.
    own = ("LD_PRELOAD", "TCMALLOC_", "MALLOC_", "MIMALLOC_", "SCUDO_", "GLIBC_TUNABLES")
    env = {word: value for word, value in os.environ.items() if not word.startswith(own)}
    env |= {"PYTHONMALLOC": "malloc", **environment}
    if library is not None:
        env["LD_PRELOAD"] = str(library)
    run = subprocess.run(
        [sys.executable, "-I", str(OBSERVER), *map(str, words)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def expected(classes, largest):
    """Return from which request on each class is handed out."""
    firsts = [1, *(size + 1 for size in classes)]
    return [[a, b] for a, b in zip(firsts, classes, strict=False) if a <= largest]


def known(version, *prefixes):
    if not version.startswith(prefixes):
        pytest.skip(f"version {version} is installed, the preset is of {' or '.join(prefixes)}")


def test_jemalloc():
    library = shared("jemalloc", "libjemalloc.so.2")
    known(observe(library, "jemalloc"), "5.3.")
    assert observe(library, "usable", LIMIT, 1) == expected(
        preset_classes("jemalloc").classes, LIMIT
    )


def test_gperftools():
    library = shared("gperftools", "libtcmalloc_minimal.so.4")
    known(observe(library, "version", "tc_version", "text"), "gperftools 2.10")
    assert observe(library, "usable", LIMIT, 1) == expected(
        preset_classes("gperftools").classes, LIMIT
    )


@pytest.mark.parametrize("objects", [8, 128])
def test_gperftools_with_its_knob(objects):
    """The one knob that can be turned from outside moves the installed allocator as the preset."""
    library = shared("gperftools", "libtcmalloc_minimal.so.4")
    known(observe(library, "version", "tc_version", "text"), "gperftools 2.10")
    found = observe(library, "usable", LIMIT, 1, TCMALLOC_TRANSFER_NUM_OBJ=str(objects))
    made = preset_classes("gperftools", transfer_num_obj=objects)
    assert found == expected(made.classes, LIMIT)


def test_mimalloc():
    library = shared("mimalloc", "libmimalloc.so.2")
    version = str(observe(library, "version", "mi_version", "int"))
    known(version, "209")
    assert observe(library, "usable", LIMIT, 1) == expected(
        preset_classes("mimalloc").classes, LIMIT
    )


def test_tbb():
    library = shared("tbbmalloc", "libtbbmalloc_proxy.so.2")
    known(library.name, "libtbbmalloc_proxy.so.2.8")
    classes = preset_classes("tbb").classes
    # Larger objects are exactly as large as the request.
    exact = [[size, size] for size in range(classes[-1] + 1, classes[-1] + 65)]
    assert observe(library, "usable", exact[-1][0], 1) == expected(classes, LIMIT) + exact


def test_glibc():
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc")
    # Without mapping large chunks, which are of whole pages. What is left of a free chunk and is no
    # chunk by itself stays with the object, so the smallest of a few answers counts.
    found = observe(None, "usable", LIMIT, 9, GLIBC_TUNABLES="glibc.malloc.mmap_threshold=33554432")
    assert found == expected(preset_classes("glibc").classes, LIMIT)


@pytest.mark.parametrize("version", [14, 16, 19])
def test_scudo(version):
    # The usable size of scudo is the request; the blocks show in the distances of objects.
    library = find(
        f"scudo of LLVM {version}",
        f"/usr/lib/llvm-{version}/lib/clang/*/lib/*/libclang_rt.scudo_standalone-x86_64.so",
        f"/usr/lib/llvm-{version}/lib/clang/*/lib/x86_64*/libclang_rt.scudo_standalone.so",
    )
    made = preset_classes("scudo-default-14" if version < 19 else "scudo-default-19")
    usable = [size - made.header_bytes for size in made.classes]
    requests = [1, *usable, *(size + 1 for size in usable[:-1])]
    blocks = [made.classes[0], *made.classes, *made.classes[1:]]
    # Objects that are sampled for errors lie elsewhere.
    found = observe(library, "stride", *requests, SCUDO_OPTIONS="GWP_ASAN_Enabled=false")
    assert found == [list(pair) for pair in zip(requests, blocks, strict=True)]

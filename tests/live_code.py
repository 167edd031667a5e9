"""Machine code for the tests of px.CodeHeap, and how it is written and called."""

import ctypes
import platform
import re
from pathlib import Path

import pytest

from pyallocx.code import CODE_POLICIES, HISTORICAL

SIZED = CODE_POLICIES[len(HISTORICAL) :]
MODES = ("flip", "dual", "rwx")

MACHINE = platform.machine()
ADD = {
    "x86_64": bytes.fromhex("89f8 01f0 c3"),  # mov eax, edi; add eax, esi; ret
    "aarch64": bytes.fromhex("0000010b c0035fd6"),  # add w0, w0, w1; ret
}.get(MACHINE)
executes = pytest.mark.skipif(ADD is None, reason=f"no machine code for {MACHINE} here")


def constant(number):
    """Machine code of a function that returns a number below 2**16."""
    if MACHINE == "aarch64":  # movz w0, #number; ret
        return (0x52800000 | number << 5).to_bytes(4, "little") + bytes.fromhex("c0035fd6")
    return b"\xb8" + number.to_bytes(4, "little") + b"\xc3"  # mov eax, number; ret


CODE_BYTES = len(constant(0))


def call(block, *arguments):
    assert block.executable
    kinds = [ctypes.c_int] * (1 + len(arguments))
    return ctypes.CFUNCTYPE(*kinds)(block.address)(*arguments)


def writable(address):
    """Return the address of the same byte where it can be written to; None: nobody says.

    It is another one where a second mapping of the same file is what is written through.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    areas = re.findall(
        r"(?m)^(\w+)-(\w+) (....) (\w+) (\S+ \d+)", maps.read_text()
    )  # start, end, rights, offset, device and inode
    areas = [(int(a, 16), int(b, 16), how, int(at, 16), file) for a, b, how, at, file in areas]
    here = next(area for area in areas if area[0] <= address < area[1])
    if "w" in here[2]:
        return address
    in_file = address - here[0] + here[3]
    for start, end, how, offset, file in areas:
        if file == here[4] and "w" in how and offset <= in_file < offset + end - start:
            return start + in_file - offset
    raise AssertionError(f"no second mapping of {address:#x}")


def sealed(heap, code, size_bytes=None):
    block = heap.alloc(size_bytes or len(code))
    heap.write(block, code)
    heap.seal(block)
    return block

"""Machine code for the tests of px.CodeHeap, and how it is written and called."""

import ctypes
import platform

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


def sealed(heap, code, size_bytes=None):
    block = heap.alloc(size_bytes or len(code))
    heap.write(block, code)
    heap.seal(block)
    return block

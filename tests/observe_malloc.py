"""Look at the malloc of this process; runs as a program, with the allocator preloaded.

``usable LARGEST`` prints where the usable size changes over the requests 1 to LARGEST: the first
request, the size it gets. ``stride REQUEST...`` prints the greatest common divisor of the distances
of many objects of each request: the block that an allocator has which does not tell its size.
``version SYMBOL TYPE`` calls a function that returns a number or a text.
"""

import ctypes
import json
import math
import sys
from itertools import pairwise

process = ctypes.CDLL(None)
malloc, free = process.malloc, process.free
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
free.restype, free.argtypes = None, [ctypes.c_void_p]


def usable(largest, tries):
    ask = process.malloc_usable_size
    ask.restype, ask.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    changes, last = [], 0
    if tries > 1:
        # Pieces that the interpreter left behind, a little too large for what is asked, go first:
        # these are never freed.
        for _ in range(500):
            for request in range(8, 1024, 16):
                malloc(request)
    for request in range(1, largest + 1):
        held, size = [], math.inf
        # An allocator that hands out what it found a little too large is asked again.
        while len(held) < tries and size != last:
            held.append(malloc(request))
            size = min(size, ask(held[-1]))
        for pointer in held:
            free(pointer)
        if size != last:
            changes.append((request, size))
            last = size
    return changes


def stride(requests, objects=96):
    found = []
    for request in requests:
        held = sorted(malloc(request) for _ in range(objects))
        found.append((request, math.gcd(*(b - a for a, b in pairwise(held)))))
        for pointer in held:
            free(pointer)
    return found


def version(symbol, type_):
    ask = getattr(process, symbol)
    ask.restype = {"int": ctypes.c_int, "text": ctypes.c_char_p}[type_]
    answer = ask(None, None, None) if type_ == "text" else ask()
    return answer.decode() if isinstance(answer, bytes) else answer


def jemalloc_version():
    text, length = ctypes.c_char_p(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p))
    process.mallctl(b"version", ctypes.byref(text), ctypes.byref(length), None, ctypes.c_size_t(0))
    return text.value.decode()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "usable":
        answer = usable(*map(int, words))
    elif what == "stride":
        answer = stride(map(int, words))
    elif what == "jemalloc":
        answer = jemalloc_version()
    else:
        answer = version(*words)
    print(json.dumps(answer))

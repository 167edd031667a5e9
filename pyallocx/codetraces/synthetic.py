"""Synthetic code traces: compiled methods, each with its main code and its exits."""

from __future__ import annotations

from typing import SupportsFloat, SupportsIndex

import numpy as np

from pyallocx._portable import Stream
from pyallocx._sizes import MAX_BYTES, Empirical, Fixed, LogNormal, PowerLaw, Uniform, integer, real
from pyallocx.trace import OP_ALLOC, OP_FREE, Trace

__all__ = ["synthesize_code"]

MOST_METHODS = 1 << 28
KEY_NAMES = ("main", "exit")

Sizes = Fixed | Uniform | LogNormal | PowerLaw | Empirical

MAIN_SIZES = LogNormal(median_bytes=700, sigma=0.8, max_bytes=1 << 16)
EXIT_SIZES = LogNormal(median_bytes=150, sigma=0.8, max_bytes=1 << 14)

# Which stream of the seed each quantity draws from; those below are taken by `pyallocx.synth`.
_MAIN, _EXIT, _UNLOADED, _MOMENT = range(32, 36)


def synthesize_code(
    methods: SupportsIndex = 2_000,
    *,
    seed: SupportsIndex = 0,
    sizes: Sizes | int = MAIN_SIZES,
    exit_sizes: Sizes | int | None = EXIT_SIZES,
    unload_fraction: SupportsFloat = 0.5,
) -> Trace:
    """Make a random trace of compiled methods.

    A stream is a place that a compiler writes to. One with two of them writes a method's main code
    into one piece of memory and the exits from it (side exits, slow paths) into another. Each
    method is therefore two allocs in a row, its main code (key 0) and its exits (key 1), and one
    that is unloaded two frees in a row, main code first. A replay counts each alloc as one of its
    ``methods``.

    Parameters
    ----------
    methods
        Methods that are compiled, from 0 to 2**28.
    seed
        From 0 to 2**64 - 1. The same arguments give the same trace on every machine.
    sizes, exit_sizes
        Sizes of the main code and of the exits: a distribution of `pyallocx.synth`, or a number of
        bytes. By default log-normal with medians of 700 and 150 bytes. With None as `exit_sizes`
        a method is its main code alone: one alloc and one free.
    unload_fraction
        Share of the methods that are unloaded, from 0 to 1: exactly so many, to the nearest whole
        number. Each is unloaded after its own compilation or any later one, all equally likely.

    Returns
    -------
    Trace
        With the columns ``op``, ``object``, ``size_bytes`` and ``key``; the arguments and
        ``key_names`` are in its metadata.

    Raises
    ------
    TypeError
        An argument is no number, or no distribution.
    ValueError
        An argument is out of its range; the message names it and the range.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize_code(1_000, seed=7, unload_fraction=0.25)
    >>> len(trace), trace.n_objects, trace.metadata["key_names"]
    (2500, 2000, ['main', 'exit'])
    >>> px.synthesize_code(10, sizes=512, exit_sizes=None, unload_fraction=0)
    Trace(10 events, 10 objects, with key)
    """
    n = integer("methods", methods, 0, MOST_METHODS)
    number = integer("seed", seed, 0, (1 << 64) - 1)
    fraction = real("unload_fraction", unload_fraction, 0, 1)
    main = _sizes("sizes", sizes)
    exits = None if exit_sizes is None else _sizes("exit_sizes", exit_sizes)
    pieces = 1 if exits is None else 2

    # Which methods are unloaded: those with the smallest draws.
    unloaded = np.sort(
        np.argsort(Stream(number, _UNLOADED).uniform(n), kind="stable")[: round(n * fraction)]
    )
    later = Stream(number, _MOMENT).below(unloaded.size, n - unloaded)
    # An event is ordered by the compilation it comes with or after, frees last, then by method.
    method = np.concatenate([np.arange(n, dtype=np.int64), unloaded])
    moment = np.concatenate([2 * np.arange(n, dtype=np.int64), 2 * (unloaded + later) + 1])
    freed = np.repeat(np.array([OP_ALLOC, OP_FREE], dtype=np.uint8), [n, unloaded.size])
    order = np.argsort(moment, kind="stable")

    key = np.tile(np.arange(pieces, dtype=np.uint32), order.size)
    op = np.repeat(freed[order], pieces)
    object_ = (np.repeat(method[order], pieces) * pieces + key).astype(np.uint32)
    size_of = np.empty(n * pieces, dtype=np.uint64)
    size_of[::pieces] = main.quantile(Stream(number, _MAIN).uniform(n))
    if exits is not None:
        size_of[1::pieces] = exits.quantile(Stream(number, _EXIT).uniform(n))
    size_bytes = size_of[object_]
    size_bytes[op == OP_FREE] = 0
    metadata = {
        "source": "pyallocx.synthesize_code",
        "methods": n,
        "seed": number,
        "sizes": _summary(main),
        "exit_sizes": None if exits is None else _summary(exits),
        "unload_fraction": fraction,
        "key_names": list(KEY_NAMES[:pieces]),
    }
    return Trace(op=op, object=object_, size_bytes=size_bytes, key=key, metadata=metadata)


def _sizes(name: str, value: Sizes | int) -> Sizes:
    return value if isinstance(value, Sizes) else Fixed(integer(name, value, 1, MAX_BYTES))


def _summary(sizes: Sizes) -> str:
    return (
        f"Empirical({len(sizes.size_bytes)} sizes)" if isinstance(sizes, Empirical) else repr(sizes)
    )

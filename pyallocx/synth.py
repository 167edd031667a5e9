"""Synthetic traces: sizes, lifetimes, arenas, types and threads as small objects that combine.

:func:`synthesize` puts them together; an object says what it means, and its fields their units:

>>> import pyallocx as px
>>> from pyallocx.synth import Arenas, LogNormal, Phases
>>> trace = px.synthesize(
...     1_000,
...     seed=7,
...     sizes=LogNormal(median_bytes=80, sigma=0.7),
...     lifetimes=Phases(allocations=100, surviving=0.1),
...     arenas=Arenas(5, mean_events=400),
... )
>>> len(trace)
1000

A name stands for an object with its defaults, and a number for the simplest one:

>>> trace = px.synthesize(1_000, sizes=48, lifetimes="stack", arenas=3, keys=20)
>>> sorted({int(size) for size in trace.size_bytes[trace.op == px.OP_ALLOC]})
[48]

The same arguments give the same bytes on every machine, under every version of NumPy (see
``pyallocx/_portable.py``); a test holds the project itself to that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from pyallocx._portable import F64, I64, Stream, exp, log
from pyallocx._sizes import (
    MAX_BYTES,
    Empirical,
    Fixed,
    LogNormal,
    PowerLaw,
    Uniform,
    choose,
    integer,
    real,
    whole,
)
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Trace

__all__ = [
    "Arenas",
    "Empirical",
    "Exponential",
    "Fixed",
    "Keys",
    "LogNormal",
    "Phases",
    "PowerLaw",
    "Stack",
    "Uniform",
    "synthesize",
]

MAX_EVENTS = 1 << 31  # so that an object is a u32
NO_OBJECT = 0xFFFFFFFF  # the object of a destroy, in a u32 column
MAX_COUNT = 1 << 20  # of arenas, types, threads

T = TypeVar("T")

# Which stream of the seed each quantity draws from.
(
    _SIZE,
    _LIFETIME,
    _BIRTH,
    _ARENA_OF_OBJECT,
    _ARENA_END,
    _ARENA_ENDING,
    _KEY,
    _THREAD,
    _REALLOC,
    _REALLOC_MOMENT,
    _REALLOC_SIZE,
) = range(11)


# --- lifetimes --------------------------------------------------------------------------------


class _Script(NamedTuple):
    """Allocations and frees in order, before arenas and reallocs come in.

    The k-th allocation makes object k, here and at every later step.
    """

    op: npt.NDArray[np.uint8]
    object: I64


@dataclass(frozen=True)
class Exponential:
    """Every object is as likely to die at the next event as any other, however old it is.

    Allocations arrive as a Poisson process, at a rate that makes the trace advance by one event per
    unit of its clock from the first event on, so that the mean holds while the heap still grows.
    It settles at about ``mean_events / 2`` live objects.

    Parameters
    ----------
    mean_events
        Mean lifetime of an object, in events of the trace, from 1 to 1e12; of objects that the end
        of their arena does not cut short.
    """

    mean_events: float = 1_000.0

    def __post_init__(self) -> None:
        real("mean_events", self.mean_events, 1, 1e12)

    def script(self, seed: int, events: int, share: float) -> _Script:
        """Make about `events` allocations and frees (see the class)."""
        mean = max(self.mean_events * share, 1.0)
        # How many come before the last event, and six standard deviations more.
        expected = (
            events / 2 + (1.0 - exp(np.array([max(-2 * events / mean, -700.0)]))[0]) * mean / 4
        )
        n = int(expected + 6.0 * math.sqrt(expected)) + 16
        births = _steady_clock(_arrivals(Stream(seed, _BIRTH), n), mean)
        # Rounding must not put a later object before an earlier one.
        births = np.maximum.accumulate(births)
        births = births[births < events]
        n = max(births.size, 1)
        births = np.append(births, 0.0)[:n]  # the first event is there even if the clock is late
        deaths = births + mean * Stream(seed, _LIFETIME).exponential(n)
        # One integer for each event, time first and object last: they are all different, so that
        # any sorting algorithm gives the same order.
        object_bits = n.bit_length()
        scale = 2.0 ** (62 - object_bits - (events + 1).bit_length())
        object_ = np.arange(n, dtype=np.int64)
        dying = np.flatnonzero(deaths < events)
        moment = np.concatenate([whole(births * scale), whole(deaths[dying] * scale)])
        kind = np.repeat(np.array([0, 1], dtype=np.int64), [n, dying.size])
        keys = ((moment << 1 | kind) << object_bits) | np.concatenate([object_, dying])
        return _unpack(np.sort(keys), object_bits)


def _arrivals(stream: Stream, n: int) -> F64:
    """Return the first `n` times of a Poisson process with one event per unit of time."""
    # Whole ticks add up exactly, and in any order.
    ticks: I64 = np.cumsum(whole(stream.exponential(n) * 2.0**20))
    return ticks.astype(np.float64) * 2.0**-20


def _steady_clock(arrivals: F64, mean: float) -> F64:
    """Return the times of allocations such that, with the frees, one event comes per unit of time.

    With N live objects there are N / mean frees per unit, and so 1 - N / mean allocations. From
    N' = 1 - 2 N / mean and N(0) = 0 it follows that there are
    ``t / 2 + (1 - exp(-2 t / mean)) * mean / 4`` allocations up to time t. Here `arrivals`
    (ordered) are values of that sum, and its inverse is wanted: with x = 2 t / mean and
    y = 4 * arrivals / mean, the x with x + 1 - exp(-x) = y.
    """
    y = arrivals * (4.0 / mean)
    x = y - 1.0  # exact where exp(-x) has vanished
    early = y[: int(np.searchsorted(y, 40.0))]
    # The left side is concave: from a start below the root Newton's steps stay below it and rise.
    root = np.maximum(early * 0.5, early - 1.0)
    for _ in range(6):
        vanishing = exp(-root)
        root += (early - 1.0 - root + vanishing) / (1.0 + vanishing)
    x[: early.size] = root
    return x * (mean / 2.0)


@dataclass(frozen=True)
class Phases:
    """A program that works in phases: everything allocated in a phase dies at its end.

    A phase is a run of allocations and then a run of frees, oldest object first. A fraction of the
    objects survives each end, those that survived earlier ones included: a survivor lives on to
    the end of a later phase. (The trace's last phase may be cut off.)

    Parameters
    ----------
    allocations
        Allocations in a phase, from 1 to 2**31.
    surviving
        Probability of an object to survive the end of a phase, from 0 to 1.
    """

    allocations: int = 1_000
    surviving: float = 0.0

    def __post_init__(self) -> None:
        integer("allocations", self.allocations, 1, MAX_EVENTS)
        real("surviving", self.surviving, 0, 1)

    def script(self, seed: int, events: int, share: float) -> _Script:
        """Make at least about `events` allocations and frees (see the class)."""
        each, surviving = self.allocations, self.surviving
        # In the long run every allocation has its free, unless nothing ever dies.
        phases = events // (each if surviving == 1 else 2 * each) + 2
        n = min(phases * each, events)
        birth = np.arange(n, dtype=np.int64) // each
        if surviving == 1:
            death = np.full(n, phases)
        elif surviving == 0:
            death = birth
        else:
            # How many ends an object survives is geometrically distributed.
            (log_surviving,) = log(np.array([surviving]))
            ends = -Stream(seed, _LIFETIME).exponential(n) / log_surviving
            death = birth + whole(np.minimum(ends, phases))
        object_bits = n.bit_length()
        object_ = np.arange(n, dtype=np.int64)
        # The end of a phase that was not filled is not reached.
        dying = np.flatnonzero(death < n // each)
        keys = np.concatenate(
            [birth << object_bits + 1 | object_, (death[dying] << 1 | 1) << object_bits | dying]
        )
        return _unpack(np.sort(keys), object_bits)


@dataclass(frozen=True)
class Stack:
    """Last allocated, first freed: the depth of the stack goes one up or one down at each event.

    The depth is a random walk that turns back at 0 and at `max_depth`; all depths between are
    equally likely in the long run.

    Parameters
    ----------
    max_depth
        Most objects alive at a time, from 1 to 65535.
    """

    max_depth: int = 64

    def __post_init__(self) -> None:
        integer("max_depth", self.max_depth, 1, 65535)

    def script(self, seed: int, events: int, share: float) -> _Script:
        """Make exactly `events` allocations and frees (see the class)."""
        steps = 2 * Stream(seed, _LIFETIME).below(events, 2) - 1
        # A free walk, folded into [0, max_depth]: each of its steps still changes the depth by one.
        walk = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(steps)])
        walk %= 2 * self.max_depth
        depth = np.minimum(walk, 2 * self.max_depth - walk)
        up = depth[1:] > depth[:-1]
        # An object's level is the depth after its allocation and before its free. On one level
        # allocations and frees take turns: in an order by level each free follows its allocation.
        level = np.maximum(depth[1:], depth[:-1]).astype(np.uint16)
        order = np.argsort(level, kind="stable")
        object_ = np.cumsum(up, dtype=np.int64) - 1
        allocation = np.where(up[order], object_[order], -1)
        freed = np.flatnonzero(allocation < 0)
        allocation[freed] = allocation[freed - 1]
        object_[order] = allocation
        return _Script(np.where(up, OP_ALLOC, OP_FREE).astype(np.uint8), object_)


def _unpack(keys: I64, object_bits: int) -> _Script:
    """Events from their sorted keys: ..., one bit for a free, `object_bits` for the object."""
    free = keys >> object_bits & 1
    op = np.where(free == 1, OP_FREE, OP_ALLOC).astype(np.uint8)
    return _Script(op, keys & ((1 << object_bits) - 1))


# --- arenas and types -------------------------------------------------------------------------


@dataclass(frozen=True)
class Arenas:
    """Arenas, each with a life of its own.

    Objects go to an arena at random and live there. At its end an arena takes all that is in it
    along (one destroy event instead of the frees), and an empty one takes its place and its number.
    An arena that nothing was allocated in has no destroy event.

    Parameters
    ----------
    count
        Arenas alive at a time, from 1 to 2**20. A busy browser has 5 to 24.
    mean_events
        Mean life of an arena (exponentially distributed), from `count` to 1e12, or infinity: then
        none ends. In events of the trace, among which the frees count that the ends of arenas made
        needless.
    """

    count: int = 8
    mean_events: float = math.inf

    def __post_init__(self) -> None:
        integer("count", self.count, 1, MAX_COUNT)
        if self.mean_events != math.inf:
            real("mean_events", self.mean_events, self.count, 1e12)


@dataclass(frozen=True)
class Keys:
    """Types of objects, each with one size, like the frames of a layout engine.

    The sizes of the types are drawn from the trace's size distribution; two types may have the
    same. The k-th type (from 1) is drawn with a probability proportional to ``k ** -skew``.

    Parameters
    ----------
    count
        Types, from 1 to 2**20.
    skew
        From 0 (all equally often) to 10.
    """

    count: int = 100
    skew: float = 1.0

    def __post_init__(self) -> None:
        integer("count", self.count, 1, MAX_COUNT)
        real("skew", self.skew, 0, 10)

    def of_objects(self, seed: int, n: int) -> I64:
        """Types of `n` objects in a trace of this seed."""
        rank = np.arange(1, self.count + 1, dtype=np.float64)
        weights = exp(np.maximum(-self.skew * log(rank), -700.0))
        return choose(Stream(seed, _KEY).uniform(n), weights.tolist())


Sizes = Fixed | Uniform | LogNormal | PowerLaw | Empirical
Lifetimes = Exponential | Phases | Stack

_SIZES: Mapping[str, Sizes] = {
    "fixed": Fixed(),
    "uniform": Uniform(),
    "lognormal": LogNormal(),
    "powerlaw": PowerLaw(),
}
_LIFETIMES: Mapping[str, Lifetimes] = {
    "exponential": Exponential(),
    "phases": Phases(),
    "stack": Stack(),
}


def _named(name: str, value: str, known: Mapping[str, T]) -> T:
    """Return the model that `value` names, or an error that lists the names."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return known[value]


# --- putting it together ----------------------------------------------------------------------


def synthesize(
    events: SupportsIndex | None = None,
    *,
    like: Trace | None = None,
    seed: SupportsIndex = 0,
    sizes: Sizes | Trace | str | int = "lognormal",
    lifetimes: Lifetimes | str = "exponential",
    arenas: Arenas | int = 1,
    keys: Keys | int | None = None,
    threads: SupportsIndex = 1,
    realloc_fraction: float = 0.0,
) -> Trace:
    """Make a random trace: of the models that are asked for, or like a given one.

    Parameters
    ----------
    events
        Events in the trace, from 0 to 2**31; it has exactly as many. What is alive then stays so.
        By default 100,000, or as many as `like` has.
    like
        A trace to be like: its sizes (exactly these), alignments, keys and calls, the lifetime of
        each size, reallocs, threads and frees across threads, ends of arenas, its phases and what
        is alive at the end; see Notes. Then only `events` and `seed` may be given. Its asides are
        left out. How close it comes says `pyallocx.closeness`.
    seed
        From 0 to 2**64 - 1. The same arguments give the same trace on every machine.
    sizes
        Request sizes: :class:`Fixed`, :class:`Uniform`, :class:`LogNormal`, :class:`PowerLaw`,
        :class:`Empirical`; the name of one of the first four ("fixed", "uniform", "lognormal",
        "powerlaw") for its defaults; a number of bytes for a fixed size; a trace for the sizes of
        its allocations.
    lifetimes
        :class:`Exponential`, :class:`Phases` or :class:`Stack`, or a name ("exponential",
        "phases", "stack") for its defaults.
    arenas
        :class:`Arenas`, or their number; such arenas never end. With 1 there is no arena column.
    keys
        :class:`Keys`, or their number. By default there are no types and no key column.
    threads
        Threads, from 1 to 2**20. An object belongs to one at random, which does all that happens to
        it; a destroy is the first thread's.
    realloc_fraction
        Share of reallocs in the events, from 0 to less than 1; 0 with `keys`, as a type has one
        size. Each is of a random object at a random moment of its life, to a new size.

    Returns
    -------
    Trace
        Its ``op``, ``object``, ``size_bytes``, ``thread`` and, where asked for, ``arena`` and
        ``key`` columns have `events` elements each; the arguments are in its metadata.

    Raises
    ------
    ValueError
        An argument is out of its range; the message names it and the range. Or `like` has no
        events, or comes with a model.

    Notes
    -----
    Fitted to `like` is no formula. Its run is cut into up to 1024 windows of equally many events,
    and the objects born in a window into runs of 32 births after one another, each with all its
    events. The new trace draws runs from the same windows in random order (a block bootstrap,
    stationary within a window). Of another length, it draws each run more or less often; what
    happens soon after the birth of an object keeps its distance in events, and what happens later
    its place in the run, so that the heap of a trace of twice the events has about twice the
    long-lived objects. An arena ends where it ended, a longer trace has more ends, and an object
    that died with an arena whose end now comes before its birth lives on.

    Examples
    --------
    >>> import pyallocx as px
    >>> from pyallocx.synth import Exponential
    >>> trace = px.synthesize(10_000, seed=1, sizes="uniform", lifetimes="stack", threads=4)
    >>> len(trace), int(trace.thread.max())
    (10000, 3)
    >>> like_it = px.synthesize(10_000, sizes=trace, lifetimes=Exponential(mean_events=50))
    >>> px.synthesize(like=trace, seed=5).n_objects == trace.n_objects
    True
    """
    number = integer("seed", seed, 0, (1 << 64) - 1)
    if like is not None:
        models = (sizes, lifetimes, arenas, keys, threads, realloc_fraction)
        if models != ("lognormal", "exponential", 1, None, 1, 0.0):
            raise ValueError("like is given: sizes, lifetimes and so on are those of the trace")
        return _like(like, events, number)
    n_events = 100_000 if events is None else integer("events", events, 0, MAX_EVENTS)
    n_threads = integer("threads", threads, 1, MAX_COUNT)
    if isinstance(sizes, str):
        sizes = _named("sizes", sizes, _SIZES)
    elif isinstance(sizes, Trace):
        sizes = Empirical.of(sizes)
    elif not isinstance(sizes, Sizes):
        sizes = Fixed(integer("sizes", sizes, 1, MAX_BYTES))
    if isinstance(lifetimes, str):
        lifetimes = _named("lifetimes", lifetimes, _LIFETIMES)
    elif not isinstance(lifetimes, Lifetimes):
        raise TypeError(f"lifetimes must be a name or a model, got {lifetimes!r}")
    if not isinstance(arenas, Arenas):
        arenas = Arenas(integer("arenas", arenas, 1, MAX_COUNT))
    if keys is not None and not isinstance(keys, Keys):
        keys = Keys(integer("keys", keys, 1, MAX_COUNT))
    fraction = real("realloc_fraction", realloc_fraction, 0, math.nextafter(1, 0))
    if fraction and keys is not None:
        raise ValueError(f"realloc_fraction must be 0 with keys, got {fraction}")

    columns = _columns(n_events, number, sizes, lifetimes, arenas, keys, n_threads, fraction)
    metadata = {
        "source": "pyallocx.synthesize",
        "events": n_events,
        "seed": number,
        "sizes": _summary(sizes),
        "lifetimes": _summary(lifetimes),
        "arenas": _summary(arenas),
        "keys": None if keys is None else _summary(keys),
        "threads": n_threads,
        "realloc_fraction": fraction,
    }
    return Trace(
        op=columns["op"],
        object=columns["object"],
        size_bytes=columns["size_bytes"],
        thread=columns["thread"],
        arena=columns.get("arena"),
        key=columns.get("key"),
        metadata=metadata,
    )


def _like(trace: Trace, events: SupportsIndex | None, seed: int) -> Trace:
    from pyallocx._synthlike import synthesize_like

    if not isinstance(trace, Trace):
        raise TypeError(f"like must be a trace, got {trace!r}")
    if not len(trace):
        raise ValueError(f"like is {trace!r}; it needs events to be like")
    wanted = len(trace) if events is None else events
    return synthesize_like(trace, integer("events", wanted, 0, MAX_EVENTS), seed)


def _summary(model: object) -> str:
    if isinstance(model, Empirical):
        return f"Empirical({len(model.size_bytes)} sizes)"
    return repr(model)


def _columns(
    events: int,
    seed: int,
    sizes: Sizes,
    lifetimes: Lifetimes,
    arenas: Arenas,
    keys: Keys | None,
    threads: int,
    realloc_fraction: float,
) -> dict[str, npt.NDArray[Any]]:
    """Columns of the trace that `synthesize` describes, from checked arguments."""
    reallocs = min(round(events * realloc_fraction), max(events - 1, 0))
    share = (events - reallocs) / events if reallocs else 1.0
    story = _lives(events - reallocs, seed, lifetimes, arenas, share)
    if reallocs:
        story = _with_reallocs(story, seed, reallocs)
    op, object_, arena_of, ends = story
    is_alloc = op == OP_ALLOC
    objects = int(np.count_nonzero(is_alloc))
    owned = np.where(op == OP_DESTROY, 0, object_)

    # The k-th allocation makes object k, so what is drawn for each object is in the order of the
    # allocations.
    size_bytes = np.zeros(events, dtype=np.uint64)
    key_of: I64 | None = None
    if keys is None:
        size_bytes[is_alloc] = sizes.quantile(Stream(seed, _SIZE).uniform(objects))
    else:
        key_of = keys.of_objects(seed, objects)
        size_bytes[is_alloc] = sizes.quantile(Stream(seed, _SIZE).uniform(keys.count))[key_of]
    if reallocs:
        changes = sizes.quantile(Stream(seed, _REALLOC_SIZE).uniform(reallocs))
        size_bytes[op == OP_REALLOC] = changes

    columns: dict[str, npt.NDArray[Any]] = {
        "op": op,
        "object": np.where(op == OP_DESTROY, NO_OBJECT, object_).astype(np.uint32),
        "size_bytes": size_bytes,
        "thread": np.zeros(events, dtype=np.uint32),
    }
    if threads > 1:
        thread_of = Stream(seed, _THREAD).below(objects, threads)
        columns["thread"] = _dense(thread_of, threads)[thread_of[owned]]
        columns["thread"][op == OP_DESTROY] = 0
    if arenas.count > 1 or arenas.mean_events < math.inf:
        arena = arena_of[owned]
        arena[op == OP_DESTROY] = ends
        columns["arena"] = _dense(arena_of[:objects], arenas.count)[arena]
    if key_of is not None:
        key = key_of[owned].astype(np.uint32)
        key[op == OP_DESTROY] = 0
        columns["key"] = key
    return columns


class _Story(NamedTuple):
    """Events in order, with what it takes to know when each object's life ends."""

    op: npt.NDArray[np.uint8]
    object: I64  # of a destroy: 0, without a meaning
    arena_of: I64  # of each object, and perhaps of more
    ends: I64  # the arena of each destroy


def _lives(events: int, seed: int, lifetimes: Lifetimes, arenas: Arenas, share: float) -> _Story:
    """Exactly `events` allocations, frees and destroys; `share` is their share of the trace."""
    # How many a script has is random, and arenas take frees away: ask for a few more and cut.
    # A beginning of a trace is a trace.
    budget = events + 4 * math.isqrt(events) + 64
    while True:
        op, object_ = lifetimes.script(seed, budget, share)
        story = _with_arenas(op, object_, seed, arenas, share)
        missing = events - story.op.size
        if missing <= 0:
            break
        budget += 2 * missing + 64
    op = story.op[:events]
    ends = story.ends[: int(np.count_nonzero(op == OP_DESTROY))]
    return story._replace(op=op, object=story.object[:events], ends=ends)


def _with_arenas(
    op: npt.NDArray[np.uint8], object_: I64, seed: int, arenas: Arenas, share: float
) -> _Story:
    """Give each object an arena, and end arenas."""
    births = np.flatnonzero(op == OP_ALLOC)
    none = np.zeros(0, dtype=np.int64)
    if arenas.count == 1:
        arena_of = np.zeros(births.size, dtype=np.int64)
    else:
        arena_of = Stream(seed, _ARENA_OF_OBJECT).below(births.size, arenas.count)
    if arenas.mean_events == math.inf:
        return _Story(op, object_, arena_of, none)

    # The ends of all arenas together are a Poisson process, and each is any arena's: the same as
    # exponential lives of their own. An end is put before the event with its number.
    gap = arenas.mean_events * share / arenas.count
    n = int(op.size / gap + 6 * math.sqrt(op.size / gap)) + 16
    slots = whole(_arrivals(Stream(seed, _ARENA_END), n) * gap) + 1
    slots = slots[slots < op.size]
    ends = Stream(seed, _ARENA_ENDING).below(slots.size, arenas.count)

    end = _first_end(births, arena_of, slots, ends)
    reached = np.zeros(slots.size, dtype=np.bool_)
    reached[end[end < slots.size]] = True
    slots_or_never = np.append(slots, op.size)
    frees = np.flatnonzero(op == OP_FREE)
    keep = np.ones(op.size, dtype=np.bool_)
    keep[frees] = frees < slots_or_never[end[object_[frees]]]
    slots, ends = slots[reached], ends[reached]
    slots = (np.cumsum(keep) - keep)[slots]
    return _Story(
        np.insert(op[keep], slots, OP_DESTROY), np.insert(object_[keep], slots, 0), arena_of, ends
    )


def _first_end(births: I64, arena_of: I64, slots: I64, ends: I64) -> I64:
    """For each object which of the destroys ends it, or their number if none does.

    An object born at event b in arena a ends with the first destroy of a whose slot is after b.
    """
    if not slots.size:
        return np.zeros(births.size, dtype=np.int64)
    span = 1 + max(int(births[-1]), int(slots[-1]))
    order = np.argsort(ends * span + slots, kind="stable")
    found = np.searchsorted((ends * span + slots)[order], arena_of * span + births, side="right")
    candidate = np.append(order, 0)[found]
    mine = (found < slots.size) & (ends[candidate] == arena_of)
    return np.where(mine, candidate, slots.size)


def _with_reallocs(story: _Story, seed: int, reallocs: int) -> _Story:
    """Insert `reallocs` reallocs, each of a random object at a random moment of its life."""
    op, object_, arena_of, ends = story
    births = np.flatnonzero(op == OP_ALLOC)
    destroys = np.flatnonzero(op == OP_DESTROY)
    last = np.append(destroys, op.size)[_first_end(births, arena_of[: births.size], destroys, ends)]
    frees = np.flatnonzero(op == OP_FREE)
    last[object_[frees]] = frees
    chosen = Stream(seed, _REALLOC).below(reallocs, births.size)
    # A moment is the number of the event that it is just before: after the birth, up to the last.
    life = (last - births)[chosen]
    slots = births[chosen] + 1 + Stream(seed, _REALLOC_MOMENT).below(reallocs, life)
    order = np.argsort(slots, kind="stable")
    slots = slots[order]
    return story._replace(
        op=np.insert(op, slots, OP_REALLOC), object=np.insert(object_, slots, chosen[order])
    )


def _dense(labels: I64, count: int) -> npt.NDArray[np.uint32]:
    """Return new labels for 0 to `count` - 1, in the order in which `labels` first has them."""
    used, first = np.unique(labels, return_index=True)
    new = np.zeros(count, dtype=np.uint32)
    new[used[np.argsort(first, kind="stable")]] = np.arange(used.size, dtype=np.uint32)
    return new

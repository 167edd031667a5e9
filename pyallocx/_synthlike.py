"""Traces like a given one: see `pyallocx.synth.synthesize`, which calls this for ``like=``.

What is fitted is not a formula but the trace itself, in small pieces: the run is cut into windows
of equally many events, and in each window the lives of the objects born there (all events of each,
with their distances) are cut into runs of consecutive births. A new trace draws runs of the same
window, each equally often, in random order: a block bootstrap [1]_ that is stationary within a
window only. So a life keeps its sizes, thread, key, alignment and reallocs together, neighbours
stay neighbours (which is what the free lists of an arena see), and phases stay where they are.

.. [1] H. R. Künsch, "The Jackknife and the Bootstrap for General Stationary Observations", The
   Annals of Statistics 17 (1989) 1217-1241.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx._columns import COLUMN_DTYPES
from pyallocx._columntable import dense
from pyallocx._portable import I64, Stream
from pyallocx.trace import OP_ALLOC, OP_DESTROY, Trace

__all__ = ["synthesize_like"]

WINDOWS: Final = 1024
"""Most windows of progress, each with lives of its own."""
RUN_OBJECTS: Final = 32
"""Consecutive births that stay together."""
WINDOW_RUNS: Final = 4
"""Runs that a window has at least, on average, so that there is something to draw."""

# Streams of the seed; those of `synth` come before.
_CHOICE, _OFFSET, _ORDER, _FITTING, _DESTROY = range(16, 21)

_NAMES: Final = ("name", "file", "program", "command", "source")


def windows_of(trace: Trace) -> int:
    """Return into how many windows a trace is cut."""
    return max(1, min(WINDOWS, trace.n_objects // (RUN_OBJECTS * WINDOW_RUNS)))


class _Lives(NamedTuple):
    """The events of a trace, object by object."""

    event: I64  # numbers of events, object after object, each in order
    first: I64  # where in `event` each object begins
    events: I64  # how many each object has

    @property
    def birth(self) -> I64:
        return self.event[self.first]


def _lives_of(trace: Trace) -> _Lives:
    named = np.flatnonzero(trace.op != OP_DESTROY)
    owner = trace.object[named]
    count = np.bincount(owner.astype(np.int64), minlength=trace.n_objects)
    event = named[np.argsort(owner, kind="stable")]
    return _Lives(event, np.cumsum(count) - count, count)


def synthesize_like(trace: Trace, events: int, seed: int) -> Trace:
    """Return a trace of exactly `events` events like `trace`, which has some."""
    wanted = events
    while True:
        op_source, object_, moment = _draw(trace, events, wanted, seed)
        missing = events - len(op_source)
        if missing <= 0:
            break
        # Ends of arenas made frees needless: draw more lives. A beginning of a trace is a trace.
        wanted += missing + missing // 2 + 16
    op_source, object_, moment = op_source[:events], object_[:events], moment[:events]
    columns: dict[str, npt.NDArray[Any] | None] = {}
    for name in COLUMN_DTYPES:
        column = getattr(trace, name)
        columns[name] = None if column is None else column[op_source]
    columns["object"] = object_
    for name in ("thread", "arena"):
        labels = columns[name]
        if labels is not None and len(labels):
            columns[name] = dense(labels)[1].astype(np.uint32)
    if trace.time_ns is not None:
        # The same progress at the same share of the duration: rates per second stay.
        scale = events / len(trace)
        at = np.minimum(moment / scale, len(trace) - 1).astype(np.int64)
        begin = trace.time_ns[0]
        spent = ((trace.time_ns[at] - begin).astype(np.float64) * scale).astype(np.uint64)
        columns["time_ns"] = np.maximum.accumulate(begin + spent)
    metadata = {
        "source": "pyallocx.synthesize",
        "like": {
            **{name: trace.metadata[name] for name in _NAMES if name in trace.metadata},
            "events": len(trace),
            "objects": trace.n_objects,
        },
        "events": events,
        "seed": seed,
        "windows": windows_of(trace),
        "run_objects": RUN_OBJECTS,
    }
    if "key_names" in trace.metadata:
        metadata["key_names"] = trace.metadata["key_names"]
    return Trace._adopt(columns, metadata, None)


def _draw(
    trace: Trace, events: int, wanted: int, seed: int
) -> tuple[I64, npt.NDArray[np.unsignedinteger[Any]], I64]:
    """Return for each event which event it copies, its object, and its moment.

    There are about `wanted` of them, exactly as many where no arena ends, on a clock that runs from
    0 to `events`.
    """
    lives = _lives_of(trace)
    chosen, birth = _births(trace, lives, events, seed)
    chosen, birth, count = _fitted(lives, chosen, birth, wanted - _destroys(trace, events), seed)
    # The events of all lives, life after life.
    total = int(count.sum())
    life = np.repeat(np.arange(len(chosen)), count)
    within = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    source = lives.event[lives.first[chosen][life] + within]
    moment = _moments(trace, lives, chosen[life], source, birth[life], events)
    # In a life time does not run backwards: a running maximum, life by life.
    span = events + 1
    moment = np.maximum.accumulate(moment + life * span) - life * span
    if trace.arena is not None:
        source, life, moment = _with_ends(trace, source, life, moment, events, seed)
    order = np.argsort(4 * moment + _rank(trace, lives, source), kind="stable")
    source, life, moment = source[order], life[order], moment[order]
    dtype = trace.object.dtype if trace.object.dtype == np.uint64 else np.dtype(np.uint32)
    made = trace.op[source] == OP_ALLOC
    names = np.full(len(chosen) + 1, np.iinfo(dtype).max, dtype=dtype)
    names[life[made]] = np.arange(int(np.count_nonzero(made)))
    return source, names[life], moment


def _rank(trace: Trace, lives: _Lives, source: I64) -> I64:
    """Return the order of events of one moment: those of other runs must not part neighbours.

    What ends a short life comes first, then what comes to old objects, then births: so an object
    that was freed by the next event still is. Ends of arenas come last.
    """
    op = trace.op[source]
    rank = np.full(len(source), 3, dtype=np.int64)
    named = op != OP_DESTROY
    age = source[named] - lives.birth[trace.object[source[named]].astype(np.int64)]
    rank[named] = np.where(age > RUN_OBJECTS, 1, 0)
    rank[op == OP_ALLOC] = 2
    return rank


def _births(trace: Trace, lives: _Lives, events: int, seed: int) -> tuple[I64, I64]:
    """Return which objects are drawn, in the order of their births, and when each is born."""
    total, born = len(trace), lives.birth
    n, windows = len(born), windows_of(trace)
    scale = events / total
    window = born * windows // total
    starts = np.searchsorted(window, np.arange(windows + 1))
    # Runs end where windows do.
    place = np.arange(n) - starts[window]
    begins = np.flatnonzero(place % RUN_OBJECTS == 0)
    lengths = np.diff(np.append(begins, n))
    run_window = window[begins]
    # Each run is drawn as often as any other, give or take one: where the multiples of 1 / scale
    # fall on the runs, in a random order within the window.
    order = np.lexsort((Stream(seed, _CHOICE).uniform(len(begins)), run_window))
    offset = float(Stream(seed, _OFFSET).uniform(1)[0])
    ladder = np.floor(np.arange(len(begins) + 1) * scale + offset).astype(np.int64)
    drawn = np.repeat(order, np.diff(ladder))
    where = np.lexsort((Stream(seed, _ORDER).uniform(len(drawn)), run_window[drawn]))
    drawn = drawn[where]
    if not len(drawn):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    # A run takes as long as it took, up to the birth after it or the end of its window; the runs of
    # a window fill it, so they are stretched a little together.
    edges = np.array([-(-total * w // windows) for w in range(windows + 1)], dtype=np.int64)
    after = np.append(born, total)[begins + lengths]
    last = np.minimum(after, edges[run_window + 1])
    # The first of a window waits as the program did.
    lead = np.where(starts[run_window] == begins, born[begins] - edges[run_window], 0)
    took = (last - born[begins] + lead).astype(np.float64)
    took_drawn, w = took[drawn], run_window[drawn]
    whole = np.bincount(w, weights=took_drawn, minlength=windows)
    room = np.diff(edges) * scale
    stretch = np.divide(room, whole, out=np.ones(windows), where=whole > 0)
    before = np.cumsum(took_drawn) - took_drawn
    before -= np.concatenate(([0.0], np.cumsum(whole)))[w]
    start = edges[w] * scale + before * stretch[w]
    each = lengths[drawn]
    of_run = np.repeat(np.arange(len(drawn)), each)
    within = np.arange(len(of_run)) - np.repeat(np.cumsum(each) - each, each)
    chosen = begins[drawn][of_run] + within
    shift = born[chosen] - born[begins[drawn]][of_run] + lead[drawn][of_run]
    birth = (start[of_run] + shift * stretch[w][of_run]).astype(np.int64)
    return chosen, np.minimum(birth, events - 1)


def _fitted(lives: _Lives, chosen: I64, birth: I64, wanted: int, seed: int) -> tuple[I64, I64, I64]:
    """Leave out lives, or draw some twice, until they have `wanted` events together."""
    count = lives.events[chosen]
    excess = int(count.sum()) - wanted
    if not len(chosen):
        # So few events that no run was drawn: the first life, as often as it takes.
        chosen = birth = np.zeros(max(wanted, 0), dtype=np.int64)
        count = lives.events[chosen]
        if not len(chosen):
            return chosen, birth, count
        excess = int(count.sum()) - wanted
    if excess == 0:
        return chosen, birth, count
    some = np.argsort(Stream(seed, _FITTING).uniform(len(chosen)), kind="stable")
    if excess > 0:
        sums = np.cumsum(count[some])
        gone = int(np.searchsorted(sums, excess, side="right"))
        rest = excess - (int(sums[gone - 1]) if gone else 0)
        # The next one has more events than are to go: it lives on without its last ones.
        if rest:
            count[some[gone]] -= rest
        keep = np.ones(len(chosen), dtype=np.bool_)
        keep[some[:gone]] = False
        return chosen[keep], birth[keep], count[keep]
    rounds = -excess // int(count.sum()) + 1
    some = np.tile(some, rounds)
    sums = np.cumsum(count[some])
    more = int(np.searchsorted(sums, -excess, side="right"))
    rest = -excess - (int(sums[more - 1]) if more else 0)
    extra = some[: more + 1] if rest else some[:more]
    added = count[extra].copy()
    if rest:
        added[-1] = rest
    chosen = np.concatenate((chosen, chosen[extra]))
    birth = np.concatenate((birth, birth[extra]))
    return chosen, birth, np.concatenate((count, added))


def _moments(
    trace: Trace, lives: _Lives, object_: I64, source: I64, birth: I64, events: int
) -> I64:
    """Return when each event is, from its distance to the birth of its object.

    What comes soon after the birth keeps its distance in events, so that what lives shortly lives
    as shortly in a longer trace. What comes windows later keeps its place in the run.
    """
    scale = events / len(trace)
    window = len(trace) / windows_of(trace)
    soon = min(scale, 1.0) * window / 4
    distance = (source - lives.birth[object_]).astype(np.float64)
    near = np.minimum(distance, soon) + np.maximum(distance - soon, 0.0) * scale
    moment = np.where(distance <= window, birth + near, source * scale).astype(np.int64)
    return np.minimum(np.maximum(moment, birth + (distance > 0)), events)


# --- arenas -----------------------------------------------------------------------------------


def _destroys(trace: Trace, events: int) -> int:
    """Return how many arenas end."""
    return int(np.count_nonzero(trace.op == OP_DESTROY) * events / len(trace) + 0.5)


def _with_ends(
    trace: Trace, source: I64, life: I64, moment: I64, events: int, seed: int
) -> tuple[I64, I64, I64]:
    """Put in ends of arenas, and take out what would happen to objects after theirs."""
    from pyallocx.synth import _first_end

    assert trace.arena is not None
    ends = np.flatnonzero(trace.op == OP_DESTROY)
    number = _destroys(trace, events)
    if not number:
        return source, life, moment
    offset = float(Stream(seed, _DESTROY).uniform(1)[0])
    at = ((np.arange(number) + offset) * (len(ends) / number)).astype(np.int64)
    ends = ends[np.minimum(at, len(ends) - 1)]
    slots = np.sort((ends * (events / len(trace))).astype(np.int64))
    made = trace.op[source] == OP_ALLOC
    births, owners = moment[made], trace.arena[source[made]].astype(np.int64)
    order = np.argsort(births, kind="stable")
    # Doubled, so that an end comes after the events of its moment and before those of the next.
    first = np.empty(len(births), dtype=np.int64)
    if len(births):
        first[order] = _first_end(
            2 * births[order], owners[order], 2 * slots + 1, trace.arena[ends].astype(np.int64)
        )
    none = int(life.max(initial=-1)) + 1
    last = np.zeros(none, dtype=np.int64)
    last[life[made]] = np.append(2 * slots + 1, 2 * events + 2)[first]
    keep = 2 * moment < last[life]
    return (
        np.concatenate((source[keep], ends)),
        np.concatenate((life[keep], np.full(number, none))),
        np.concatenate((moment[keep], slots)),
    )

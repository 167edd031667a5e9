"""A trace over its run: what was live when, how fast it allocated, how long objects lived.

>>> import pyallocx as px
>>> trace = px.synthesize(10_000, seed=1, lifetimes=px.synth.Exponential(mean_events=500))
>>> line = px.timeline(trace, points=100)
>>> int(line["most_live_bytes"].max()) == trace.summary()["peak_live_bytes"]
True
>>> lives = px.lifetimes(trace)
>>> 0.5 < lives.died_within(100_000) < 1
True
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from pyallocx._columntable import Column, ColumnTable, signed
from pyallocx._core import TraceTimeline
from pyallocx._optional import need_matplotlib
from pyallocx._sizes import integer, real
from pyallocx._traceprofile import _deaths
from pyallocx.trace import OP_ALLOC, OP_REALLOC, Trace
from pyallocx.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Lifetimes", "Sizes", "Timeline", "lifetimes", "plot_trace", "sizes", "timeline"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Unit = Literal["bytes", "events", "ns"]
Weight = Literal["objects", "bytes"]

_MOST_POINTS: Final = 1 << 24
# The members of ax_timeline_row, in its order.
_ROW: Final = (
    *("allocs", "frees", "reallocs", "destroys", "allocated_bytes"),
    *("live_objects", "live_bytes", "least_live_objects", "most_live_objects"),
    *("least_live_bytes", "most_live_bytes", "most_bytes_event"),
)


class Timeline(ColumnTable):
    """A trace in intervals, one row each.

    The columns are int64, bytes uint64 where they do not fit, rates float64.

    ``event``
        How many events there were by the end of the interval; the interval begins where the row
        before ends.
    ``time_ns``
        Where there are times: the end of the interval (by event, the time of its last event).
    ``allocs``, ``frees``, ``reallocs``, ``allocated_bytes``
        In the interval; bytes of allocs and reallocs. ``destroys`` where there are arenas.
    ``live_objects``, ``live_bytes``
        After the last event of the interval; request sizes.
    ``least_live_objects``, ``most_live_objects``, ``least_live_bytes``, ``most_live_bytes``
        The least and the most after any event of the interval, so that the largest of a column is
        the peak of the trace, exactly, however few rows there are. Of an interval without events,
        what was live before it.
    ``allocs_per_second``, ``frees_per_second``, ``allocated_bytes_per_second``
        Where there are times; NaN for an interval that took no time.

    Its metadata: ``by``, ``events``, ``peak_live_bytes`` and ``peak_event`` as in `Trace.summary`.
    """

    __slots__ = ()

    def _title(self) -> str:
        peak = format_bytes(self.metadata["peak_live_bytes"])
        return f"timeline: {len(self):,} intervals by {self.metadata['by']}, peak {peak}"

    def plot(
        self,
        *,
        ax: Axes | None = None,
        path: str | os.PathLike[str] | None = None,
        title: str | None = None,
    ) -> Axes:
        """Draw the live bytes over the run: a band from the least to the most of each interval.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure.
        path : path, optional
            Write the picture there; its suffix decides the format.
        title : str, optional
            By default the peak and when it was.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is no interval.
        """
        need_matplotlib("plot")
        from pyallocx._traceplot import plot_timeline

        return plot_timeline(self, ax=ax, path=path, title=title)


def timeline(
    trace: Trace,
    points: SupportsIndex = 1000,
    by: str = "event",
    *,
    progress: bool | None = None,
) -> Timeline:
    """Return what happened, and what was live, over the run of a trace.

    Parameters
    ----------
    trace : Trace
        What to look at.
    points : int, default 1000
        Intervals, from 1 to 2**24; no more than there are events (or nanoseconds).
    by : {"event", "time"}, default "event"
        Whether the intervals have equally many events or are equally long.
    progress : bool, optional
        Whether to show a progress bar. By default for long traces, where standard error is a
        terminal.

    Returns
    -------
    Timeline

    Raises
    ------
    ValueError
        `by` is none of these, or ``"time"`` for a trace without times; `points` is out of range.
    OverflowError
        A sum of sizes does not fit 64 bits.
    """
    _check_trace(trace)
    wanted = integer("points", points, 1, _MOST_POINTS)
    if by not in ("event", "time"):
        raise ValueError(f"by is {by!r}, allowed are 'event' and 'time'")
    if by == "time" and trace.time_ns is None:
        raise ValueError("by is 'time', but the trace has no times; allowed is 'event'")
    events = len(trace)
    times = trace.time_ns
    begins = ends = None
    if by == "event" or times is None or not events:
        rows = min(wanted, events)
        edges = _even(0, events, rows)
        if times is not None:
            ends = times[edges[1:].astype(np.int64) - 1]
            begins = np.concatenate((times[:1], ends[:-1]))
    else:
        first, last = int(times[0]), int(times[-1])
        rows = min(wanted, max(last - first, 1))
        marks = _even(first, last, rows)
        inside = np.searchsorted(times, marks[1:], side="right")
        edges = np.concatenate(([0], inside)).astype(np.uint64)
        begins, ends = marks[:-1], marks[1:]
    found = _walk(trace, edges, progress)
    columns: dict[str, Column] = {"event": edges[1:].astype(np.int64)}
    if ends is not None and begins is not None:
        columns["time_ns"] = signed(ends)
    for number, name in enumerate(_ROW[:-1]):
        if name != "destroys" or trace.arena is not None:
            columns[name] = signed(found[:, number])
    if ends is not None and begins is not None:
        seconds = (ends - begins).astype(np.float64) / 1e9
        for name in ("allocs", "frees", "allocated_bytes"):
            rate: F64 = np.full(rows, np.nan)
            np.divide(columns[name], seconds, out=rate, where=seconds > 0)
            columns[f"{name}_per_second"] = rate
    peaks = found[:, _ROW.index("most_live_bytes")]
    at = int(peaks.argmax()) if events else 0
    about = {
        "by": by,
        "events": events,
        "peak_live_bytes": int(peaks[at]) if events else 0,
        "peak_event": _peak_event(trace, found, at) if events else None,
    }
    return Timeline(columns, about)


def _check_trace(trace: object) -> None:
    if not isinstance(trace, Trace):
        raise TypeError(f"trace must be a Trace, not {type(trace).__name__}")


def _even(first: int, last: int, parts: int) -> npt.NDArray[np.uint64]:
    """Return the ends of equal parts of a range, each rounded down; exactly, as whole numbers."""
    whole, rest = divmod(last - first, max(parts, 1))
    steps = np.arange(parts + 1, dtype=np.uint64)
    share = steps * np.uint64(rest) // np.uint64(max(parts, 1))
    return np.uint64(first) + steps * np.uint64(whole) + share


def _peak_event(trace: Trace, found: npt.NDArray[np.uint64], at: int) -> int:
    """Return the first event after which the most bytes were live, as the summary has it."""
    event = int(found[at, _ROW.index("most_bytes_event")])
    if not int(found[at, _ROW.index("most_live_bytes")]):
        # Nothing ever had a size: the peak is where the first object appeared, or the first event.
        made = np.flatnonzero(trace.op == OP_ALLOC)
        return int(made[0]) if len(made) else event
    return event


def _walk(
    trace: Trace, edges: npt.NDArray[np.uint64], progress: bool | None
) -> npt.NDArray[np.uint64]:
    """Return the rows of the core, an array of shape (rows, 12)."""
    walker = TraceTimeline(edges, *trace._walk_columns())
    trace._walk(walker, "timeline", progress)
    return np.frombuffer(walker.rows(), dtype=np.uint64).reshape(-1, len(_ROW))


class Lifetimes(ColumnTable):
    """How long each object of a trace lived, one row per object in the order of their births.

    ``birth_event``, ``death_event``
        The alloc, and the free or the end of its arena; -1 where the object lives at the end of
        the trace.
    ``size_bytes``
        The request size at birth.
    ``lifetime_events``
        Events from birth to death.
    ``lifetime_bytes``
        Bytes that the program allocated (by allocs and reallocs, the whole new size each) after the
        birth, up to the death: the clock of the literature on generational collectors, which runs
        the same on every machine.
    ``lifetime_ns``
        Where the trace has times.
    ``censored``
        True for what lives at the end of the trace. Its lifetimes are those up to the end, so that
        the true ones, if there are any, are longer.

    Notes
    -----
    An object that outlives the trace is no reason to leave it out (long lives would be missing),
    nor to take its end for its death (lives would be too short). `survival`, and all that is made
    from it, is the product-limit estimator [1]_, which uses such an object for as long as it was
    seen.

    References
    ----------
    .. [1] E. L. Kaplan, P. Meier, "Nonparametric Estimation from Incomplete Observations", Journal
       of the American Statistical Association 53 (1958) 457-481.
    """

    __slots__ = ()

    def _title(self) -> str:
        living = int(np.count_nonzero(self["censored"]))
        return f"lifetimes: {len(self):,} objects, {living:,} live at the end"

    def survival(self, unit: Unit = "bytes", weight: Weight = "objects") -> tuple[Column, F64]:
        """Return the share that lives longer than each lifetime that occurs.

        Parameters
        ----------
        unit : {"bytes", "events", "ns"}, default "bytes"
            What lifetimes are measured in: allocated bytes, events, nanoseconds.
        weight : {"objects", "bytes"}, default "objects"
            Whether each object counts as one or with its size at birth.

        Returns
        -------
        lifetimes : ndarray of int64 or uint64, shape (n,)
            Increasing; those at which an object died.
        survival : ndarray of float64, shape (n,)
            The share that lives longer; 1 before the first. Where the last is above 0, nothing is
            known of longer lives than the longest that was seen.

        Raises
        ------
        ValueError
            `unit` or `weight` is none of these, or ``"ns"`` for a trace without times.
        """
        times, weights = self._measured(unit, weight)
        if not len(times):
            return times, np.zeros(0)
        order = np.argsort(times, kind="stable")
        times, weights = times[order], weights[order]
        dead = np.where(self["censored"][order], 0.0, weights)
        first = np.flatnonzero(np.concatenate(([True], times[1:] != times[:-1])))
        died = np.add.reduceat(dead, first)
        # Whoever is censored at a time was still at risk at that time.
        risk = np.cumsum(weights[::-1])[::-1][first]
        some = died > 0
        died, risk = died[some], risk[some]
        # Sums of weights round: what is left after all have died is nothing.
        left = np.maximum(1.0 - died / risk, 0.0)
        survival: F64 = np.cumprod(left, dtype=np.float64)
        if len(survival) and int(first[np.flatnonzero(some)[-1]]) >= self._first_of_tail(order):
            survival[-1] = 0.0
        return times[first[some]], survival

    def _first_of_tail(self, order: I64) -> int:
        """Return the place after the last censored object in this order."""
        living = np.flatnonzero(self["censored"][order])
        return int(living[-1]) + 1 if len(living) else 0

    def _measured(self, unit: str, weight: str) -> tuple[Column, F64]:
        units = [u for u in ("bytes", "events", "ns") if f"lifetime_{u}" in self]
        if unit not in units:
            raise ValueError(f"unit is {unit!r}, allowed are {', '.join(map(repr, units))}")
        if weight not in ("objects", "bytes"):
            raise ValueError(f"weight is {weight!r}, allowed are 'objects' and 'bytes'")
        times = self[f"lifetime_{unit}"]
        if weight == "objects":
            return times, np.ones(len(times))
        return times, self["size_bytes"].astype(np.float64)

    def died_within(
        self, lifetime: float, unit: Unit = "bytes", weight: Weight = "objects"
    ) -> float:
        """Return the share that dies within a lifetime, from 0 to 1; NaN without objects.

        Parameters
        ----------
        lifetime : float
            In `unit`.
        unit, weight : str
            As in `survival`.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            Where `survival` raises it.
        """
        within = real("lifetime", lifetime, 0, math.inf)
        return self._share(*self.survival(unit, weight), within)

    def _share(self, at: Column, survival: F64, lifetime: float) -> float:
        if not len(self):
            return float("nan")
        found = int(np.searchsorted(at, lifetime, side="right"))
        return float(1.0 - survival[found - 1]) if found else 0.0

    def quantile(
        self, share: float, unit: Unit = "bytes", weight: Weight = "objects"
    ) -> float | None:
        """Return the lifetime within which a share dies; 0.5 is the median.

        Parameters
        ----------
        share : float
            From 0 to 1.
        unit, weight : str
            As in `survival`.

        Returns
        -------
        float or None
            None where fewer are known to die: too many live at the end of the trace.
        """
        return self._at(*self.survival(unit, weight), real("share", share, 0, 1))

    @staticmethod
    def _at(at: Column, survival: F64, share: float) -> float | None:
        # The survival only falls; rounding must not hide a share that is reached on paper.
        reached = np.flatnonzero(1.0 - survival >= share - 1e-12)
        return float(at[reached[0]]) if len(reached) else None

    def summary(self, unit: Unit = "bytes") -> dict[str, Any]:
        """Return the distribution in numbers, fit for JSON.

        Returns
        -------
        dict
            ``unit``; ``objects`` and ``bytes`` (request sizes at birth); ``censored_objects`` and
            ``censored_bytes``, what lives at the end; ``quantiles`` of objects and of bytes, by
            share; ``died_within``, shares of objects and bytes by lifetime (powers of ten, and for
            bytes of two).
        """
        lives, sizes = self["censored"], self["size_bytes"]
        marks = [1 << p for p in (10, 12, 14, 16, 18, 20, 24)]
        if unit != "bytes":
            marks = [10**p for p in ((1, 2, 3, 4, 5, 6) if unit == "events" else range(3, 11))]
        about: dict[str, Any] = {
            "unit": unit,
            "objects": len(self),
            "bytes": int(sizes.sum(dtype=object)) if len(sizes) else 0,
            "censored_objects": int(np.count_nonzero(lives)),
            "censored_bytes": int(sizes[lives].sum(dtype=np.uint64)),
            "quantiles": {},
            "died_within": {},
        }
        weights: tuple[Weight, ...] = ("objects", "bytes")
        for weight in weights:
            at, survival = self.survival(unit, weight)
            about["quantiles"][weight] = {
                str(share): self._at(at, survival, share)
                for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
            }
            about["died_within"][weight] = {
                str(mark): None if not len(self) else self._share(at, survival, mark)
                for mark in marks
            }
        return about

    def plot(
        self,
        unit: Unit = "bytes",
        *,
        ax: Axes | None = None,
        path: str | os.PathLike[str] | None = None,
        title: str | None = None,
    ) -> Axes:
        """Draw which share dies within each lifetime, of objects and of bytes.

        Parameters
        ----------
        unit : {"bytes", "events", "ns"}, default "bytes"
            The unit of the horizontal axis.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure.
        path : path, optional
            Write the picture there; its suffix decides the format.
        title : str, optional
            By default the medians.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If nothing died.
        """
        need_matplotlib("plot")
        from pyallocx._traceplot import plot_lifetimes

        return plot_lifetimes(self, unit, ax=ax, path=path, title=title)


def lifetimes(trace: Trace) -> Lifetimes:
    """Return how long each object of a trace lived.

    Parameters
    ----------
    trace : Trace
        What to look at.

    Returns
    -------
    Lifetimes

    Raises
    ------
    OverflowError
        The sum of the request sizes does not fit 64 bits.
    """
    _check_trace(trace)
    total = trace.summary()["allocated_bytes"]  # also refuses sums that do not fit
    events = len(trace)
    births = np.flatnonzero(trace.op == OP_ALLOC)
    deaths = _deaths(trace, events, births)
    censored = deaths == events
    asked = (trace.op == OP_ALLOC) | (trace.op == OP_REALLOC)
    clock = np.cumsum(np.where(asked, trace.size_bytes, np.uint64(0)), dtype=np.uint64)
    clock = np.append(clock, np.uint64(total or 0))
    columns: dict[str, Column] = {
        "birth_event": births,
        "death_event": np.where(censored, -1, deaths),
        "size_bytes": signed(trace.size_bytes[births]),
        "lifetime_events": deaths - births,
        "lifetime_bytes": signed(clock[deaths] - clock[births]),
    }
    if trace.time_ns is not None:
        times = trace.time_ns
        last = np.minimum(deaths, max(events - 1, 0))
        columns["lifetime_ns"] = signed(times[last] - times[births])
    columns["censored"] = censored
    return Lifetimes(columns, {"events": events, "allocated_bytes": total})


class Sizes(ColumnTable):
    """What each request size of a trace was to it, one row per size in increasing order.

    ``size_bytes``; ``allocs`` and ``reallocs`` of this size; ``allocated_bytes``, the size times
    both; ``peak_objects``, live with this size when the most bytes were; ``end_objects``, live
    with it after the last event.
    """

    __slots__ = ()

    def _title(self) -> str:
        return f"sizes: {len(self):,} different"


def sizes(trace: Trace) -> Sizes:
    """Return what each request size was to a trace; `Trace.profile` has one weight as a profile.

    Parameters
    ----------
    trace : Trace
        What to look at.

    Returns
    -------
    Sizes

    Raises
    ------
    OverflowError
        A sum of sizes does not fit 64 bits.
    """
    from pyallocx._traceprofile import _histogram, _live_sizes

    _check_trace(trace)
    summary = trace.summary()
    made = trace.op == OP_ALLOC
    distinct, counts = _histogram(trace.size_bytes[made | (trace.op == OP_REALLOC)])
    columns: dict[str, Column] = {"size_bytes": signed(distinct)}
    peak = 0 if summary["peak_event"] is None else summary["peak_event"] + 1
    parts: Mapping[str, npt.NDArray[np.uint64]] = {
        "allocs": trace.size_bytes[made],
        "peak_objects": _live_sizes(trace, peak),
        "end_objects": _live_sizes(trace, len(trace)),
    }
    counted: dict[str, Column] = {}
    for name, values in parts.items():
        some, number = _histogram(values)
        counted[name] = np.zeros(len(distinct), dtype=np.int64)
        counted[name][np.searchsorted(distinct, some)] = number.astype(np.int64)
    requests = counts.astype(np.int64)
    columns["allocs"] = counted["allocs"]
    columns["reallocs"] = requests - counted["allocs"]
    columns["allocated_bytes"] = signed(distinct * requests.astype(np.uint64))
    columns["peak_objects"] = counted["peak_objects"]
    columns["end_objects"] = counted["end_objects"]
    return Sizes(columns, {"requests": int(requests.sum())})


def plot_trace(
    trace: Trace,
    *,
    name: str = "",
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw a trace in one picture: live bytes over the run, request sizes, lifetimes.

    Parameters
    ----------
    trace : Trace
        What to draw.
    name : str, optional
        What to call it in the title.
    path : path, optional
        Write the picture there; its suffix decides the format.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the trace has no events.
    """
    _check_trace(trace)
    need_matplotlib("plot_trace")
    from pyallocx._traceplot import plot_whole

    return plot_whole(trace, name=name, path=path)

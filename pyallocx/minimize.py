"""The smallest trace on which something still goes wrong: delta debugging, for bug reports.

>>> import pyallocx as px
>>> trace = px.synthesize(2_000, seed=3)
>>> small = px.minimize(trace, lambda t: t.summary()["peak_live_bytes"] >= 1000)
>>> px.OP_FREE in small.op, small.metadata["minimized"]["minimal"]
(False, True)
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, SupportsIndex

import numpy as np
import numpy.typing as npt

from pyallocx._progress import Bar, progress_bar
from pyallocx._sizes import integer
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_REALLOC, Trace

__all__ = ["MinimizeInterrupted", "minimize"]

Columns = dict[str, npt.NDArray[Any] | None]
Mask = npt.NDArray[np.bool_]

# Sizes that a reader takes for "any size will do", tried before the smallest that is needed.
_ROUND_SIZES: Final = (1, 8, 16, 64)
_OPTIONAL: Final = ("time_ns", "key", "align_log2", "call")


class MinimizeInterrupted(KeyboardInterrupt):
    """Ctrl-C during `minimize`.

    Attributes
    ----------
    best : Trace
        The smallest trace by then for which the predicate held.
    """

    def __init__(self, best: Trace) -> None:
        super().__init__(f"interrupted; .best is the smallest trace by then, {best!r}")
        self.best = best


def minimize(
    trace: Trace,
    fails: Callable[[Trace], object],
    *,
    progress: bool | None = None,
    max_calls: SupportsIndex | None = None,
) -> Trace:
    """Return a smallest part of a trace on which a predicate still holds.

    Parameters
    ----------
    trace : Trace
        A trace on which it holds.
    fails : callable
        Takes a trace, which may be one without events; true where what is looked for happens, a
        failure say. It should depend on nothing else (see Notes). What it raises ends the
        search.
    progress : bool, optional
        Whether to show a progress bar. By default where standard error is a terminal.
    max_calls : int, optional
        Call `fails` no more often than so, from 1; by default there is no limit.

    Returns
    -------
    Trace
        `fails` holds on it, and on none that has one object less (with all its events), or one free
        or realloc or destroy less (its object lives on). A size of it is 1, 8, 16 or 64, or
        cannot be one smaller; an alignment is there only where it is needed, and so are threads and
        the columns of times, keys, alignments, calls and arenas. The same arguments give the same
        trace.
        ``metadata["minimized"]`` says from how many events and objects, with how many calls, and
        in ``minimal`` whether it came to the end (False where `max_calls` stopped it, or where
        `fails` contradicted itself); ``answers_differ`` is True where `fails` gave two answers to
        the same trace. Asides are left out.

    Raises
    ------
    ValueError
        `fails` does not hold on `trace` (without its asides), or `max_calls` is out of range.
    TypeError
        `trace` is no trace, or `fails` cannot be called.
    MinimizeInterrupted
        Ctrl-C; its attribute ``best`` is the smallest trace by then.

    Notes
    -----
    Objects are left out in runs of half of them, of a quarter and so on down to single ones, so
    that few culprits among n objects are found with about ``2 * culprits * log2(n)`` calls; then
    single events, threads, sizes and columns become simpler, and all of it is repeated until
    nothing changes [1]_. That nothing less would do holds for one step at a time: leaving out two
    objects at once is not tried where leaving out either is not enough.

    No trace is looked at twice but two: the whole one at the beginning and the result at the end,
    to notice a `fails` that does not always answer the same (a race, a clock, memory that nobody
    set). Where it contradicts itself, the result may be one on which it rarely holds or never:
    call `fails` several times inside a function of your own, and answer what holds in most or in
    any of them. One that contradicts itself rarely may go unnoticed. Of `max_calls` below 3 there
    are none for this.

    References
    ----------
    .. [1] A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE
       Transactions on Software Engineering 28 (2002) 183-200.
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"trace must be a Trace, not {type(trace).__name__}")
    if not callable(fails):
        raise TypeError(f"fails must be callable, got {fails!r}")
    limit = None if max_calls is None else integer("max_calls", max_calls, 1, 1 << 62)
    bar = progress_bar(0, "minimizing", " calls", wanted=progress, long=True)
    search = _Search(trace, fails, limit, bar)
    try:
        search.run()
        search.confirm()
    except KeyboardInterrupt as exc:
        raise MinimizeInterrupted(search.result(minimal=False)) from exc
    finally:
        bar.close()
    return search.result(minimal=not search.stopped and not search.answers_differ)


class _Stop(Exception):
    """There are no calls left."""


class _Search:
    """The best trace so far, and what has been asked."""

    def __init__(
        self,
        trace: Trace,
        fails: Callable[[Trace], object],
        limit: int | None,
        bar: Bar,
    ) -> None:
        self.original = trace
        self.fails = fails
        self.limit = limit
        self.bar = bar
        self.calls = 0
        self.stopped = False
        self.answers_differ = False
        # The last call is for the result.
        self.kept = 1 if limit is None or limit > 2 else 0
        self.answers: dict[bytes, bool] = {}
        self.best: Columns = dict(trace.columns())
        self.key = b""  # of the best

    def result(self, *, minimal: bool) -> Trace:
        metadata = copy.deepcopy(dict(self.original.metadata))
        metadata["minimized"] = {
            "from_events": len(self.original),
            "from_objects": self.original.n_objects,
            "calls": self.calls,
            "minimal": minimal,
            "answers_differ": self.answers_differ,
        }
        return Trace._adopt(self.best, metadata, False)

    def run(self) -> None:
        if not self.holds(self.best):
            raise ValueError(
                f"fails does not hold on {self.original!r} (asides left out), so there is nothing "
                "to minimize"
            )
        self.confirm()
        try:
            while True:
                before = self.key
                self.drop_objects()
                self.drop_events()
                self.drop_columns()
                self.merge_threads()
                self.shrink_sizes()
                self.drop_alignments()
                if self.key == before:
                    return
        except _Stop:
            self.stopped = True

    def confirm(self) -> None:
        """Ask about the best once more."""
        if self.kept:
            self.answers_differ |= not self.ask(self.best)

    def ask(self, columns: Columns) -> bool:
        candidate = Trace._adopt(columns, copy.deepcopy(dict(self.original.metadata)), False)
        self.calls += 1
        answer = bool(self.fails(candidate))
        self.bar.update(1)
        return answer

    def holds(self, columns: Columns) -> bool:
        """Whether the predicate holds; then these columns are the best."""
        digest = hashlib.blake2b(digest_size=16)
        for name, column in columns.items():
            if column is not None:
                digest.update(f"{name} {len(column)} {column.dtype.str} ".encode())
                digest.update(np.ascontiguousarray(column).data)
        key = digest.digest()
        answer = self.answers.get(key)
        if answer is None:
            if self.limit is not None and self.calls >= self.limit - self.kept:
                raise _Stop
            answer = self.answers[key] = self.ask(columns)
        if answer:
            self.best, self.key = columns, key
        return answer

    # --- less ---

    def drop_objects(self) -> None:
        """Leave out runs of objects, ever shorter ones, until no single one can go."""
        op = self.column("op")
        self._drop(int(np.count_nonzero(op == OP_ALLOC)), self.without_objects)

    def drop_events(self) -> None:
        """Leave out runs of events other than allocs."""
        op = self.column("op")
        self._drop(int(np.count_nonzero(op != OP_ALLOC)), self.without_events)

    def _drop(self, count: int, without: Callable[[int, int], Columns]) -> None:
        """Leave out runs of `count` things, which are numbered anew as they become fewer."""
        run = 1 << max(count - 1, 0).bit_length()
        while run:
            # From the end: a beginning of a trace is what a program had done by then.
            start = count - run if count >= run else 0
            dropped = False
            while count and start + run > 0:
                begin, end = max(start, 0), min(start + run, count)
                if begin < end and self.holds(without(begin, end)):
                    count -= end - begin
                    dropped = True
                start = min(begin, count) - run
            # After single ones have gone, others may be able to.
            run = run if run == 1 and dropped else run // 2

    def column(self, name: str) -> npt.NDArray[Any]:
        column = self.best[name]
        assert column is not None
        return column

    def without_objects(self, begin: int, end: int) -> Columns:
        """Return the best without the objects of these numbers."""
        op, object_ = self.column("op"), self.column("object")
        keep = (object_ < begin) | (object_ >= end) | (op == OP_DESTROY)
        columns = _kept(self.best, keep)
        names = columns["object"]
        assert names is not None
        moved = (op[keep] != OP_DESTROY) & (names >= end)
        # A copy already: a mask makes one.
        names[moved] -= names.dtype.type(end - begin)
        return columns

    def without_events(self, begin: int, end: int) -> Columns:
        """Return the best without these of the events that are not allocs."""
        others = np.flatnonzero(self.column("op") != OP_ALLOC)
        keep = np.ones(len(self.column("op")), dtype=np.bool_)
        keep[others[begin:end]] = False
        return _kept(self.best, keep)

    # --- simpler ---

    def drop_columns(self) -> None:
        for name in _OPTIONAL:
            if self.best.get(name) is not None:
                self.holds(self.best | {name: None})
        if self.best["arena"] is not None and not (self.column("op") == OP_DESTROY).any():
            self.holds(self.best | {"arena": None})
        for name in ("arena", "thread"):
            labels = self.best[name]
            if labels is not None and len(labels):
                self.holds(self.best | {name: _dense(labels)})

    def merge_threads(self) -> None:
        """Give what a thread does to the first, all at once or thread by thread."""
        thread = self.column("thread")
        if not thread.any() or self.holds(self.best | {"thread": np.zeros_like(thread)}):
            return
        for number in np.unique(thread)[1:]:
            thread = self.column("thread")
            self.holds(self.best | {"thread": np.where(thread == number, thread.min(), thread)})
        self.holds(self.best | {"thread": _dense(self.column("thread"))})

    def shrink_sizes(self) -> None:
        """Make sizes small: all of one size together, then each alone."""
        asked = self._asking()
        for size in np.unique(self.column("size_bytes")[asked])[::-1].tolist():
            self._shrink(self._asking() & (self.column("size_bytes") == size), size)
        for at in np.flatnonzero(self._asking()).tolist():
            one = np.zeros(len(self.column("op")), dtype=np.bool_)
            one[at] = True
            self._shrink(one, int(self.column("size_bytes")[at]))
        # Nobody looks at the sizes of other events.
        sizes = np.where(self._asking(), self.column("size_bytes"), 0).astype(np.uint64)
        if not np.array_equal(sizes, self.column("size_bytes")):
            self.holds(self.best | {"size_bytes": sizes})

    def _asking(self) -> Mask:
        op = self.column("op")
        asking: Mask = (op == OP_ALLOC) | (op == OP_REALLOC)
        return asking

    def _shrink(self, which: Mask, size: int) -> None:
        """Find a size for these events, none of which can be one smaller."""
        if not which.any() or size <= 0:
            return

        def holds(smaller: int) -> bool:
            sizes = np.where(which, np.uint64(smaller), self.column("size_bytes"))
            return self.holds(self.best | {"size_bytes": sizes})

        failed = 0
        for round_size in _ROUND_SIZES:
            if round_size < size:
                if holds(round_size):
                    return
                failed = round_size
        # It holds for `most`, and not for `failed`.
        most = size
        if most - 1 > failed and holds(most - 1):
            most -= 1
            while most - failed > 1:
                middle = (most + failed) // 2
                if holds(middle):
                    most = middle
                else:
                    failed = middle

    def drop_alignments(self) -> None:
        aligned = self.best["align_log2"]
        if aligned is None:
            return
        for at in np.flatnonzero(aligned).tolist():
            simpler = self.column("align_log2").copy()
            simpler[at] = 0
            self.holds(self.best | {"align_log2": simpler})


def _kept(columns: Mapping[str, npt.NDArray[Any] | None], keep: Mask) -> Columns:
    return {name: None if c is None else c[keep] for name, c in columns.items()}


def _dense(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels numbered in the order in which they first occur."""
    used, first, where = np.unique(labels, return_index=True, return_inverse=True)
    new = np.empty(len(used), dtype=labels.dtype)
    new[np.argsort(first, kind="stable")] = np.arange(len(used), dtype=labels.dtype)
    return new[where]

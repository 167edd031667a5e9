"""Replay a trace under every cell of a parameter grid.

A *system* is what can be swept: an allocator with parameters and counters. It says what it needs
through `SweepSystem`; everything else (the grid, its validation, workers, progress, Ctrl-C, failed
cells, the table) is here, once for all systems.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from tqdm import tqdm

from pyallocx.table import SweepResult

__all__ = [
    "Cell",
    "Control",
    "Parameter",
    "SweepCancelled",
    "SweepSystem",
    "resolve_system",
    "sweep",
]

Cell = dict[str, Any]

# How often the waiting thread wakes to move the bar, and how long it waits for workers to notice
# a cancellation before it gives the interrupt back to the caller.
_TICK_S = 0.1
_GRACE_S = 0.8


class SweepCancelled(Exception):
    """A sweep was cancelled through its `Control`."""


class Control:
    """The thread-safe line between a sweep and its workers: progress one way, cancelling the other.

    A control that is pickled arrives in the other process as a fresh one: counting and cancelling
    do not cross processes, and a system need not know where it runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._events = 0

    def __reduce__(self) -> tuple[type[Control], tuple[()]]:
        return (Control, ())

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    @property
    def events(self) -> int:
        """Events replayed so far, over all workers."""
        return self._events

    def cancel(self) -> None:
        """Ask every worker to stop at its next `check`."""
        self._cancelled.set()

    def advance(self, events: int) -> None:
        """Report that `events` more events were replayed."""
        with self._lock:
            self._events += events

    def check(self) -> None:
        """Raise `SweepCancelled` when the sweep was cancelled; a system calls it every few ms."""
        if self._cancelled.is_set():
            raise SweepCancelled("the sweep was cancelled")


@dataclass(frozen=True)
class Parameter:
    """One thing a sweep can vary.

    Parameters
    ----------
    name : str
        Keyword of `sweep`, column of the result and, with dashes, flag of the command line.
    default : object
        The value of a cell whose grid does not name the parameter.
    parse : callable
        Text of the command line to a value; raises ValueError.
    help : str
        One line for ``--help``, with the unit.
    choices : tuple of str, optional
        The only allowed values.
    check : callable, optional
        Normalises a value, or raises ValueError or TypeError naming it and what is allowed.
    """

    name: str
    default: object
    parse: Callable[[str], object]
    help: str
    choices: tuple[str, ...] | None = None
    check: Callable[[object], object] | None = None

    @property
    def flag(self) -> str:
        """The flag of the command line: ``retain_bytes`` is ``--retain-bytes``."""
        return "--" + self.name.replace("_", "-")

    def validate(self, value: object) -> object:
        """Return the normalised value.

        Raises
        ------
        ValueError, TypeError
            If it is not allowed; the message names the parameter, the value and the allowed range.
        """
        if isinstance(value, np.generic):
            value = value.item()
        if self.choices is not None and value not in self.choices:
            near = difflib.get_close_matches(str(value), self.choices, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{self.name}={value!r} is not one of {', '.join(self.choices)}{hint}")
        if self.check is None:
            return value
        try:
            return self.check(value)
        except (TypeError, ValueError) as exc:
            if self.name in str(exc):
                raise
            raise type(exc)(f"{self.name}={value!r}: {exc}") from exc


@runtime_checkable
class SweepSystem(Protocol):
    """What a system tells the sweep.

    More attributes are used where they exist: ``labels`` (column to a few words for people),
    ``landmarks`` (pairs of a dict of parameter values and the name that cell is known by),
    ``context`` (names of the parameters that describe the surroundings rather than the choice: what
    is saved is told against a cell with the same ones), ``trace_type`` (the class of the traces
    that can be replayed), ``check(cell)`` (raises ValueError for a cell that no trace could be
    replayed with; it is asked before anything runs, see `sweep`), ``notes(result) -> list[str]``
    (sentences that belong under the table: what its numbers do not say) and, for the command line,
    ``explain(result) -> list[str]`` (the answer in plain sentences) and
    ``default_trace() -> (name, trace)`` (what is swept without a trace).
    """

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All that can be varied."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Result columns in order, without grid keys and status."""

    @property
    def default_grid(self) -> Mapping[str, Sequence[object]]:
        """The grid of a sweep that names no parameter."""

    @property
    def x(self) -> str:
        """Wastage column: the default x of plot, front and knee."""

    @property
    def y(self) -> str:
        """Churn column: the default y of plot, front and knee."""

    def group(self, cells: Sequence[Cell]) -> list[list[int]]:
        """Split the indices of `cells` into groups that one pass over the trace can answer.

        Each cell holds every parameter, defaults included.
        """

    def run(self, trace: Any, cells: Sequence[Cell], control: Control) -> Sequence[object]:
        """Replay one group; return one dict of all `columns`, or one exception, per cell.

        Calls ``control.check()`` at least every 0.1 s and ``control.advance(n)`` so that one group
        adds up to the events of the trace.
        """


def resolve_system(system: object) -> SweepSystem:
    """Return the `SweepSystem` of a class that has ``__sweep__``, or `system` if it is one.

    Raises
    ------
    TypeError
        If it is neither.
    """
    candidate = getattr(system, "__sweep__", system)
    if isinstance(candidate, type) or not isinstance(candidate, SweepSystem):
        raise TypeError(f"{system!r} cannot be swept: it is no SweepSystem and has no __sweep__")
    return candidate


def sweep(
    system: object,
    trace: Any,
    grids: Sequence[Mapping[str, object]] | None = None,
    *,
    executor: Executor | None = None,
    progress: bool | None = None,
    control: Control | None = None,
    **grid: object,
) -> SweepResult:
    """Replay `trace` under every combination of the grid.

    Parameters
    ----------
    system : class with ``__sweep__``, or SweepSystem
        What is swept, for instance ``pyallocx.Arena``.
    trace : Trace
        The events.
    grids : sequence of mappings, optional
        Several grids in one table, each as `grid` below, which then holds for all of them: the way
        to compare policies that have different parameters. A cell has None for a parameter that
        only other grids name; it ran with the default.
    executor : concurrent.futures.Executor, optional
        Where groups of cells run: any executor, also of processes or machines; it is left open.
        By default threads, one per core, since the core releases the GIL.
    progress : bool, optional
        A bar on stderr once the work has lasted a second. By default only on a terminal.
    control : Control, optional
        Lets another thread follow the sweep and cancel it; the sweep then raises
        `SweepCancelled`.
    **grid
        One keyword per parameter. A list, tuple, range or one-dimensional array is swept,
        duplicates included; a scalar is fixed. Parameters that are not named have their defaults.
        With no keyword at all the grid is the system's default grid.

    Returns
    -------
    SweepResult
        One row per cell: the grid in the order given, then the counters, then ``status``, which
        is ``"ok"`` or ``"error: ..."``. Rows follow the product of the lists, the last keyword
        fastest, as in scikit-learn's ``ParameterGrid``; one grid after the other.

    Raises
    ------
    TypeError
        For an unknown parameter, a value of a wrong type, or what is no trace, executor or control.
    ValueError
        For an empty list, or a value out of range: by itself, or with all the other values that
        this grid combines it with (``chunk_bytes=5000`` where every page is 4096). Nothing has run
        then. A combination that is impossible, while each of its values is possible with others,
        is a row with a status.
    KeyboardInterrupt
        On Ctrl-C, within a second, after the workers stopped.
    SweepCancelled
        If `control` was cancelled.

    Examples
    --------
    >>> import pyallocx as px
    >>> trace = px.synthesize(2000, seed=1)
    >>> policies = [dict(policy="release"), dict(policy="age", idle_operations=[10, 1000])]
    >>> res = px.sweep(px.Arena, trace, policies)
    >>> [(row["policy"], row["idle_operations"]) for row in res]
    [('release', None), ('age', 10), ('age', 1000)]
    """
    resolved = resolve_system(system)
    _check_arguments(resolved, trace, executor, control)
    defaults = {p.name: p.default for p in resolved.parameters}
    several = [expand_grid(resolved, one) for one in _joined(grids, grid)]
    for axes in several:
        refuse_impossible(resolved, axes)
    # In the order in which the grids first name them; the keywords that all share come first.
    keys = tuple(dict.fromkeys(itertools.chain(*several)))
    points = [
        dict(zip(axes, values, strict=True))
        for axes in several
        for values in itertools.product(*axes.values())
    ]
    cells = [defaults | point for point in points]
    fixed = {n: v for n, v in defaults.items() if not all(n in axes for axes in several)}
    groups = [list(group) for group in resolved.group(cells)]
    if sorted(itertools.chain(*groups)) != list(range(len(cells))):
        raise RuntimeError(f"{resolved.name}.group() must name each of {len(cells)} cells once")

    started = time.perf_counter()
    control = control or Control()
    own_pool = None
    if executor is None:
        executor = own_pool = ThreadPoolExecutor(os.cpu_count(), "pyallocx-sweep")
    try:
        answers = _run_groups(
            system,
            trace,
            [[cells[i] for i in group] for group in groups],
            executor=executor,
            control=control,
            progress=progress,
        )
    finally:
        if own_pool is not None:
            own_pool.shutdown(wait=False, cancel_futures=True)

    outcomes: list[object] = [None] * len(cells)
    for group, answer in zip(groups, answers, strict=True):
        for index, outcome in zip(group, answer, strict=True):
            outcomes[index] = outcome
    return _tabulate(
        resolved,
        points,
        outcomes,
        keys,
        {
            "trace": describe_trace(trace),
            "fixed": fixed,
            "seconds": time.perf_counter() - started,
            "passes": len(groups),
            "labels": dict(getattr(resolved, "labels", {})),
            "context": list(getattr(resolved, "context", ())),
            "landmarks": [(dict(at), name) for at, name in getattr(resolved, "landmarks", ())],
        },
    )


def _check_arguments(system: SweepSystem, trace: Any, executor: object, control: object) -> None:
    wanted = getattr(system, "trace_type", None)
    if wanted is not None and not isinstance(trace, wanted):
        raise TypeError(f"{system.name} replays a {wanted.__name__}, not a {type(trace).__name__}")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor has submit(), as in concurrent.futures; {executor!r} has not")
    if control is not None and not isinstance(control, Control):
        raise TypeError(f"control is a Control, not a {type(control).__name__}")


def _joined(
    grids: Sequence[Mapping[str, object]] | None, grid: Mapping[str, object]
) -> list[Mapping[str, object]]:
    """Return every grid with the keywords that all share."""
    if grids is None:
        return [grid]
    if isinstance(grids, (Mapping, str, bytes)) or not isinstance(grids, Sequence):
        raise TypeError(f"grids is a list of dicts, not a {type(grids).__name__}")
    if not grids:
        raise ValueError("grids: an empty list has nothing to sweep")
    for one in grids:
        if not isinstance(one, Mapping):
            raise TypeError(f"grids holds dicts, not a {type(one).__name__}")
        for name in one:
            if not isinstance(name, str):
                raise TypeError(f"grids: a parameter has a name, {name!r} is none")
        twice = sorted(set(one) & set(grid))
        if twice:
            raise TypeError(f"{twice[0]} is given for all grids and in one of them")
        if not one and not grid:
            raise ValueError("grids: an empty dict has nothing to sweep")
    return [{**grid, **one} for one in grids]


def expand_grid(system: SweepSystem, grid: Mapping[str, object]) -> dict[str, list[object]]:
    """Return validated lists of values, one per keyword, in the order given.

    Raises
    ------
    TypeError, ValueError
        As `sweep`.
    """
    known = {parameter.name: parameter for parameter in system.parameters}
    axes: dict[str, list[object]] = {}
    for name, values in (grid or system.default_grid).items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise TypeError(
                f"{system.name} has no parameter {name!r}; {hint}It has: {', '.join(known)}"
            )
        axes[name] = [known[name].validate(value) for value in _as_list(name, values)]
    return axes


def refuse_impossible(system: SweepSystem, axes: Mapping[str, Sequence[object]]) -> None:
    """Raise for a value that no cell of an expanded grid can run with.

    Raises
    ------
    ValueError
        That of the value's first cell; see `sweep`.
    """
    check: Callable[[Cell], None] | None = getattr(system, "check", None)
    if check is None:
        return
    defaults = {parameter.name: parameter.default for parameter in system.parameters}
    for name, values in axes.items():
        for value in values:
            fixed = {**axes, name: [value]}
            problem = None
            # Mostly the first cell is possible, and no other is looked at.
            for point in itertools.product(*fixed.values()):
                try:
                    check(defaults | dict(zip(fixed, point, strict=True)))
                except ValueError as exc:
                    problem = problem or exc
                else:
                    problem = None
                    break
            if problem is not None:
                raise problem


def _as_list(name: str, values: object) -> list[object]:
    if isinstance(values, np.ndarray):
        if values.ndim > 1:
            raise ValueError(f"{name}: an array of {values.ndim} dimensions; sweep one dimension")
        values = values.tolist()
    if isinstance(values, (list, tuple, range)):
        if not values:
            raise ValueError(f"{name}: an empty list has nothing to sweep")
        return list(values)
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: sweep a list, not a {type(values).__name__}, whose order counts")
    return [values]


def describe_trace(trace: Any) -> dict[str, object]:
    """Return what a trace says of itself: name, program, command and number of events."""
    metadata = dict(getattr(trace, "metadata", {}))
    described = {
        # A file may say anything here.
        key: value if isinstance(value, str) else json.dumps(value)
        for key in ("program", "command")
        if (value := metadata.get(key))
    }
    names = (metadata.get(key) for key in ("name", "file", "program", "source"))
    name = next((name for name in names if isinstance(name, str) and name), "trace")
    return {"name": name, **described, "events": len(trace)}


def _run_group(system: object, trace: Any, cells: list[Cell], control: Control) -> list[object]:
    """Run one group where the executor put it; top-level, so that it can be pickled.

    Returns one dict or one text of an error per cell. Exceptions do not leave the worker as
    objects: some cannot be pickled, and one would take the whole pool down.
    """
    try:
        control.check()
        resolved = resolve_system(system)
        outcomes = list(resolved.run(trace, cells, control))
        if len(outcomes) != len(cells):
            raise RuntimeError(f"{resolved.name} answered {len(outcomes)} of {len(cells)} cells")
        return [_checked(outcome, resolved) for outcome in outcomes]
    except SweepCancelled:
        raise
    except Exception as exc:
        return [_error_text(exc)] * len(cells)


def _checked(outcome: object, system: SweepSystem) -> object:
    if isinstance(outcome, Exception):
        return _error_text(outcome)
    if not isinstance(outcome, Mapping):
        return f"error: {system.name} answered a {type(outcome).__name__}, not a row"
    missing = [column for column in system.columns if column not in outcome]
    if missing:
        return f"error: {system.name} answered without {', '.join(missing)}"
    return dict(outcome)


def _error_text(exc: BaseException) -> str:
    return " ".join(f"error: {type(exc).__name__}: {exc}".split())


def _run_groups(
    system: object,
    trace: Any,
    groups: list[list[Cell]],
    *,
    executor: Executor,
    control: Control,
    progress: bool | None,
) -> list[list[object]]:
    """Submit all groups and wait; an interrupt cancels what has not run and stops what runs."""
    futures: list[Future[list[object]]] = []
    events = len(trace)
    total = events * len(groups)
    # disable=None is tqdm's own "only on a terminal".
    bar = tqdm(
        total=total,
        unit=" events",
        unit_scale=True,
        delay=1,
        leave=False,
        disable=None if progress is None else not progress,
    )
    try:
        for cells in groups:
            futures.append(executor.submit(_run_group, system, trace, cells, control))
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=_TICK_S)
            for future in done:
                stopped = future.exception()
                if isinstance(stopped, SweepCancelled) or (
                    stopped is not None and not isinstance(stopped, Exception)
                ):
                    raise stopped
            control.check()
            # Workers in other processes report nothing until a group is done.
            finished = (len(futures) - len(pending)) * events
            bar.update(min(max(control.events, finished), total) - bar.n)
    except BaseException:
        control.cancel()
        for future in futures:
            future.cancel()
        wait(futures, timeout=_GRACE_S)
        raise
    finally:
        bar.close()
    return [_answer(future, len(cells)) for future, cells in zip(futures, groups, strict=True)]


def _answer(future: Future[list[object]], cells: int) -> list[object]:
    # An executor's own failure (a worker died, an argument cannot be pickled) is a failed group.
    failure = future.exception()
    return future.result() if failure is None else [_error_text(failure)] * cells


def _tabulate(
    system: SweepSystem,
    points: list[Cell],
    outcomes: list[object],
    grid_keys: tuple[str, ...],
    metadata: dict[str, object],
) -> SweepResult:
    columns: dict[str, list[object]] = {
        key: [point.get(key) for point in points] for key in grid_keys
    }
    measured = [outcome if isinstance(outcome, dict) else {} for outcome in outcomes]
    for column in system.columns:
        if column not in columns:
            columns[column] = [row.get(column) for row in measured]
    columns["status"] = [o if isinstance(o, str) else "ok" for o in outcomes]

    def table(metadata: dict[str, object]) -> SweepResult:
        return SweepResult(
            columns,
            grid_keys=grid_keys,
            system=system.name,
            x=system.x,
            y=system.y,
            metadata=metadata,
        )

    notes: Callable[[SweepResult], list[str]] | None = getattr(system, "notes", None)
    result = table(metadata)
    found = notes(result) if notes is not None else []
    return table(metadata | {"notes": found}) if found else result

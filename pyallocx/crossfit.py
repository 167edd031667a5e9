"""Whether a table of size classes holds on programs that it was not made from."""

from __future__ import annotations

import html
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyallocx._constraints import constraints_of
from pyallocx._fittext import frame
from pyallocx._histogram import F64, Histogram, as_histogram, factors_of, is_profile
from pyallocx._progress import progress_bar
from pyallocx._sizes import integer, real
from pyallocx.fit import Fit, fit
from pyallocx.sweep import Control
from pyallocx.units import counted, format_percent

__all__ = ["CrossValidation", "ProgramRow", "cross_validate"]

# With two groups every draw that leaves one out holds the other alone: an interval of no width.
_LEAST = 3


class ProgramRow(NamedTuple):
    """What tables waste on one program, in percent of the bytes that it requests.

    ``own_percent``: the table made from it alone, the least possible with the same largest class.
    ``in_sample_percent``: made from all programs together. ``held_out_percent``: made from all
    others outside of its ``group``. ``low_percent`` and ``high_percent``: the interval over the
    draws that left it out, ``draws`` of them (NaN for 0). ``excluded_count``: requests above the
    largest class.
    """

    program: str
    requested_bytes: float
    own_percent: float
    in_sample_percent: float
    held_out_percent: float
    low_percent: float
    high_percent: float
    draws: int
    excluded_count: float
    group: str


@dataclass(frozen=True)
class CrossValidation:
    """In-sample against held-out wastage, program by program. Made by `cross_validate`.

    Attributes
    ----------
    rows : tuple of ProgramRow
        One per program.
    in_sample_percent, held_out_percent : float
        The means of the rows: each program counts the same.
    low_percent, high_percent : float
        The interval of the mean held-out percentage over the draws; NaN where there are none, as
        with fewer than three groups.
    confidence : float
        Of the intervals.
    seed : int
        Of the draws.
    pooled : Fit
        The table made from all programs, which is the one to use.
    """

    rows: tuple[ProgramRow, ...]
    in_sample_percent: float
    held_out_percent: float
    low_percent: float
    high_percent: float
    confidence: float
    seed: int
    pooled: Fit

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per program.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return frame(self.rows)

    def _cells(self) -> Iterator[tuple[str, ...]]:
        interval = f"{self.confidence:.0%} interval"
        grouped = self._groups < len(self.rows)
        head = ("program", *(["group"] if grouped else []))
        yield (*head, "own", "in sample", "held out", interval)
        last = ProgramRow(
            "mean",
            0,
            math.fsum(r.own_percent for r in self.rows) / len(self.rows),
            self.in_sample_percent,
            self.held_out_percent,
            self.low_percent,
            self.high_percent,
            0,
            0,
            "",
        )
        for row in (*self.rows, last):
            yield (
                row.program,
                *([row.group] if grouped else []),
                *(
                    format_percent(value).rstrip("%")
                    for value in (
                        row.own_percent,
                        row.in_sample_percent,
                        row.held_out_percent,
                    )
                ),
                "-"
                if math.isnan(row.low_percent)
                else f"{row.low_percent:.2f} to {row.high_percent:.2f}",
            )

    @property
    def _groups(self) -> int:
        return len({row.group for row in self.rows})

    def _title(self) -> str:
        groups = f" in {self._groups} groups" if self._groups < len(self.rows) else ""
        return (
            f"{counted(len(self.pooled.classes), 'size class')}, {len(self.rows)} programs{groups}"
            ": wastage in % of the requested bytes"
        )

    def _note(self) -> str:
        noun = "groups" if self._groups < len(self.rows) else "programs"
        if not math.isnan(self.low_percent):
            return (
                f"draws hold fewer {noun} than held out does, so that an interval need not contain "
                "that figure"
            )
        return f"no interval: {self._groups} {noun} are too few" if self._groups < _LEAST else ""

    def __repr__(self) -> str:
        cells = list(self._cells())
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [self._title()]
        for row in cells:
            left = len(row) - 4
            texts = [
                cell.ljust(width) if i < left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(texts).rstrip())
        lines += [self._note()] if self._note() else []
        excluded = math.fsum(row.excluded_count for row in self.rows)
        if excluded:
            are = "is larger and has" if excluded == 1 else "are larger and have"
            lines.append(f"{counted(excluded, 'request')} {are} no class")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        rows = "".join(
            "<tr>"
            + "".join(f'<td style="text-align:right">{html.escape(cell)}</td>' for cell in row)
            + "</tr>"
            for row in body
        )
        names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        return (
            f'<div style="overflow-x:auto"><b>{html.escape(self._title())}</b>'
            f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
            f"{html.escape(self._note())}</div>"
        )


def cross_validate(
    profiles: Sequence[Any],
    classes: int = 32,
    *,
    weights: str | Sequence[float] = "bytes",
    draws: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
    names: Sequence[str] | None = None,
    groups: Sequence[Hashable] | None = None,
    control: Control | None = None,
    progress: bool | None = None,
    **constraints: Any,
) -> CrossValidation:
    """Fit on some programs, look at the others.

    Every program is left out once, and a table made from the others is evaluated on it. Then
    programs are drawn with replacement, as many as there are; a table is made from those drawn and
    evaluated on those that were not. The intervals are between percentiles of these draws. With a
    handful of programs they are wide, and say so. A draw holds fewer different programs than all
    but one, so its tables are worse: an interval need not contain the held-out figure.

    Several runs of one program are no strangers to each other; `groups` leaves them out together.

    Parameters
    ----------
    profiles : sequence of profiles
        One per program, at least two; see `fit`.
    classes : int, default 32
        The largest number of classes.
    weights : str or sequence of float, default "bytes"
        How programs are combined, see `fit`, the default of which is ``"count"``. Here by default
        each counts as much as any other.
    draws : int, default 200
        From 0 (no intervals) to 1,000,000.
    confidence : float, default 0.95
        Of the intervals, above 0 and below 1.
    seed : int, default 0
        Equal seeds make equal draws.
    names : sequence of str, optional
        Of the programs; by default the names of the profiles.
    groups : sequence, optional
        A label for each profile. Profiles of one label are left out together and drawn together;
        each still counts as a program. By default each is its own group. With fewer than three
        groups there are no draws and no intervals (NaN), since a draw that leaves one of two out
        always is the other.
    control : Control, optional
        Progress and cancelling.
    progress : bool, optional
        Whether to show a bar; by default where standard error is a terminal.
    **constraints
        As of `fit`. The largest class is by default the one that holds every size of all programs,
        those left out included: some largest class every table must have.

    Returns
    -------
    CrossValidation

    Raises
    ------
    TypeError, ValueError
        As `fit`; and for fewer than two programs or groups.
    SweepCancelled
        If `control` was cancelled.

    Examples
    --------
    >>> import pyallocx as px
    >>> programs = [{24: 100, 40: 50}, {24: 80, 56: 60}, {40: 90, 56: 40}]
    >>> result = px.cross_validate(programs, classes=2, align_bytes=8, draws=0)
    >>> round(result.in_sample_percent, 1), round(result.held_out_percent, 1)
    (14.3, 28.4)

    Two runs of one program and another program:

    >>> runs = [{24: 100, 64: 10}, {24: 80, 64: 20}, {40: 90, 64: 40}]
    >>> for groups in (None, ["a", "a", "b"]):
    ...     result = px.cross_validate(runs, 2, align_bytes=8, draws=0, groups=groups)
    ...     print(round(result.held_out_percent, 1))
    11.7
    42.6
    """
    if is_profile(profiles):
        raise ValueError("one profile; to leave programs out takes at least two")
    programs = [as_histogram(profile) for profile in profiles]
    count = len(programs)
    if count < 2:
        raise ValueError(f"{count} profiles; to leave programs out takes at least two")
    for word in constraints:
        if word not in (fit.__kwdefaults__ or {}):
            raise TypeError(f"cross_validate() got an unexpected keyword argument {word!r}")
    integer("draws", draws, 0, 1_000_000)
    integer("seed", seed, 0, 2**128 - 1)
    if not 0 < real("confidence", confidence, 0, 1) < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence}")
    if names is None:
        names = [str(getattr(p, "name", "") or f"program {i + 1}") for i, p in enumerate(profiles)]
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} profiles")
    labels, member = _membership(groups, count)
    if len(labels) < _LEAST:
        draws = 0
    pool = _Pool(programs, factors_of(programs, weights), classes, constraints)
    most = pool.constraints["largest_bytes"] - constraints.get("header_bytes", 0)
    for name, program in zip(names, programs, strict=True):
        align = constraints.get("request_align_bytes", 1)
        if int(program.sizes[0]) > most // align * align:
            raise ValueError(f"{name} asks for nothing that the largest class holds ({most} bytes)")
    rng = np.random.default_rng(seed)
    bar = progress_bar(
        count + len(labels) + 1 + draws,
        "cross-validation",
        " fits",
        wanted=progress,
        long=draws > 20,
    )

    def done() -> None:
        bar.update(1)
        if control is not None:
            control.advance(1)
            control.check()

    everyone = np.ones(count)
    try:
        pooled = pool.fit(everyone)
        done()
        own, held_out = [], [math.nan] * count
        for i in range(count):
            own.append(pool.percent(pool.fit(np.eye(count)[i]), i))
            done()
            done()
        for group in range(len(labels)):
            table = pool.fit((member != group).astype(float))
            for i in np.flatnonzero(member == group).tolist():
                held_out[i] = pool.percent(table, i)
            done()
        samples: list[list[float]] = [[] for _ in programs]
        means = []
        for _ in range(draws):
            drawn = rng.integers(0, len(labels), len(labels))
            times = np.bincount(drawn, minlength=len(labels)).astype(float)[member]
            left = np.flatnonzero(times == 0).tolist()
            if left:
                table = pool.fit(times)
                values = [pool.percent(table, i) for i in left]
                means.append(math.fsum(values) / len(values))
                for i, value in zip(left, values, strict=True):
                    samples[i].append(value)
            done()
    finally:
        bar.close()

    rows = []
    for i, program in enumerate(programs):
        cost = pooled.evaluate(program)
        rows.append(
            ProgramRow(
                names[i],
                cost.requested_bytes,
                own[i],
                cost.percent,
                held_out[i],
                *_interval(samples[i], confidence),
                len(samples[i]),
                cost.excluded_count,
                names[i] if groups is None else labels[member[i]],
            )
        )
    low, high = _interval(means, confidence)
    return CrossValidation(
        rows=tuple(rows),
        in_sample_percent=math.fsum(row.in_sample_percent for row in rows) / count,
        held_out_percent=math.fsum(held_out) / count,
        low_percent=low,
        high_percent=high,
        confidence=confidence,
        seed=seed,
        pooled=pooled,
    )


def _membership(
    groups: Sequence[Hashable] | None, count: int
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the labels of the groups, and the number of the group of each profile."""
    given = list(range(count)) if groups is None else list(groups)
    if isinstance(groups, str) or len(given) != count:
        raise ValueError(f"{len(given)} groups for {count} profiles: one label for each is needed")
    numbers = {label: i for i, label in enumerate(dict.fromkeys(given))}
    if len(numbers) < 2:
        raise ValueError("one group; to leave groups out takes at least two")
    labels = [str(label) for label in numbers]
    if len(set(labels)) < len(labels):
        raise ValueError(f"two groups look alike: {', '.join(sorted(labels))}")
    return labels, np.array([numbers[label] for label in given], dtype=np.int64)


class _Pool:
    """All programs over one axis of sizes, so that any mixture of them is one product."""

    def __init__(
        self, programs: list[Histogram], factors: F64, classes: int, constraints: dict[str, Any]
    ) -> None:
        self.programs = programs
        self.classes = classes
        self.sizes = np.unique(np.concatenate([program.sizes for program in programs]))
        self.counts = np.zeros((len(programs), len(self.sizes)))
        for row, program, factor in zip(self.counts, programs, factors, strict=True):
            row[np.searchsorted(self.sizes, program.sizes)] = program.counts * factor
        every = Histogram(self.sizes, self.counts.sum(axis=0))
        shared = {n: v for n, v in constraints.items() if n != "method"}
        options = constraints_of(every, classes=classes, **shared)
        largest = min(wanted.largest_bytes for wanted in options)
        self.constraints = constraints | {"largest_bytes": largest}

    def fit(self, times: F64) -> Fit:
        counts = times @ self.counts
        some = counts > 0
        mixture = Histogram(self.sizes[some], counts[some])
        return fit(mixture, self.classes, **self.constraints)

    def percent(self, table: Fit, program: int) -> float:
        return table.evaluate(self.programs[program]).percent


def _interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    finite = [value for value in values if not math.isnan(value)]
    if not finite:
        return math.nan, math.nan
    tail = 50 * (1 - confidence)
    low, high = np.percentile(finite, [tail, 100 - tail])
    return float(low), float(high)

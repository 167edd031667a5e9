"""What the size classes of allocators waste on programs, side by side."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pyallocx._histogram import Histogram, as_histogram, is_profile
from pyallocx._sizes import MAX_BYTES, integer, real
from pyallocx.fit import Fit, wastage
from pyallocx.presets import preset, preset_names, waste_percent
from pyallocx.sizemap import SizeMap
from pyallocx.units import format_bytes, format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["AboveLimit", "League", "LeagueRow", "Rival", "league", "rivals"]


class LeagueRow(NamedTuple):
    """What one table wastes, by default without a cap.

    ``classes``: how many of its classes serve requests up to the limit. ``percents``: of the bytes
    that each program requests in these, as `pyallocx.presets.waste_percent` has it.
    ``excluded``: how many requests of each program, up to the limit, are larger than its last
    class. ``mean_percent``: each program counts the same.
    """

    name: str
    classes: int
    percents: tuple[float, ...]
    excluded: tuple[float, ...]
    mean_percent: float

    @property
    def complete(self) -> bool:
        """Whether the table has a class for every request."""
        return not any(self.excluded)


class AboveLimit(NamedTuple):
    """The requests of a program that are above the limit, and so in no figure of the league.

    The shares are of all its requests and of all its bytes, from 0 to 1.
    """

    requests: float
    requested_bytes: float
    request_share: float
    byte_share: float


@dataclass(frozen=True)
class League:
    """Tables by what they waste on programs, the least first. Made by `league`.

    Attributes
    ----------
    programs : tuple of str
        The columns.
    rows : tuple of LeagueRow
        Sorted by the mean; tables that have no class for some requests come last, since their
        figures are over fewer of them.
    limit_bytes : int
        Larger requests are left out.
    above : tuple of AboveLimit
        How much that is, of each program.
    """

    programs: tuple[str, ...]
    rows: tuple[LeagueRow, ...]
    limit_bytes: int
    above: tuple[AboveLimit, ...]

    def best(self, program: int) -> LeagueRow | None:
        """Return the table with the least waste on a program, of those that serve all requests.

        Parameters
        ----------
        program : int
            Its place among `programs`.

        Returns
        -------
        LeagueRow or None
            The first of equals; None where no table serves all.

        Raises
        ------
        IndexError
            There is no such program.
        """
        complete = [row for row in self.rows if row.complete]
        return min(complete, key=lambda row: row.percents[program], default=None)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each row; ``percent`` and ``excluded`` are by program."""
        return [
            {
                "name": row.name,
                "classes": row.classes,
                "mean_percent": row.mean_percent,
                "percent": dict(zip(self.programs, row.percents, strict=True)),
                "excluded": dict(zip(self.programs, row.excluded, strict=True)),
            }
            for row in self.rows
        ]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a line for each row: name, classes, mean, a column for each program, excluded.

        Three columns of each program follow: ``excluded``; ``above_requests`` and ``above_bytes``,
        which are the same in every line (see `AboveLimit`).

        Parameters
        ----------
        path : str or path-like
            Where to; written whole or not at all.

        Raises
        ------
        OSError
            The file could not be written; `path` is as it was.
        """
        from pyallocx._files import write_atomically

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        words = ("excluded", "above_requests", "above_bytes")
        counted = [f"{program} {word}" for program in self.programs for word in words]
        writer.writerow(["name", "classes", "mean_percent", *self.programs, "excluded", *counted])
        for row in self.rows:
            numbers = [
                number
                for out, above in zip(row.excluded, self.above, strict=True)
                for number in (out, above.requests, above.requested_bytes)
            ]
            writer.writerow(
                [
                    row.name,
                    row.classes,
                    row.mean_percent,
                    *row.percents,
                    math.fsum(row.excluded),
                    *numbers,
                ]
            )
        write_atomically(path, lambda stream: stream.write(text.getvalue().encode()))

    def plot(
        self,
        *,
        ax: Axes | None = None,
        path: str | os.PathLike[str] | None = None,
        title: str | None = None,
    ) -> Axes:
        """Draw a line of dots for each table, one for each program.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.
        path : path, optional
            A file to write.
        title : str, optional
            Above all.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from pyallocx._sizeplot import plot_league

        return plot_league(self, ax=ax, path=path, title=title)

    def __repr__(self) -> str:
        return "\n".join([*self.lines(), *self.notes()])

    def lines(self, width: int = 14) -> list[str]:
        """Return the table as text; a star marks the best of each column.

        Parameters
        ----------
        width : int, default 14
            Of a column in characters; longer names of programs are cut.

        Returns
        -------
        list of str
        """
        heads = ["mean", *self.programs]
        short = [head if len(head) <= width else head[: width - 2] + ".." for head in heads]
        names = max([4, *(len(row.name) for row in self.rows)])
        lines = [f"{'':{names}} {'K':>5} " + " ".join(f"{head:>{width}} " for head in short)]
        # Versions of an allocator often are one table: all that are equal have the star.
        complete = [row for row in self.rows if row.complete]
        best = [
            min((row.percents[i] for row in complete), default=None)
            for i in range(len(self.programs))
        ]
        least = min((row.mean_percent for row in complete), default=None)
        for row in self.rows:
            cells = [_cell(row.mean_percent, row.complete and row.mean_percent == least, width)]
            cells += [
                _cell(value, row.complete and value == best[i], width, bool(row.excluded[i]))
                for i, value in enumerate(row.percents)
            ]
            lines.append(f"{row.name:{names}} {row.classes:>5} " + " ".join(cells))
        return [line.rstrip() for line in lines]

    def notes(self) -> list[str]:
        """Return as text which requests are in no figure, and which in none of a marked row."""
        limit = format_bytes(self.limit_bytes)
        lines = [
            f"above {limit}, in no figure: {program}, {_requests(above.requests)} "
            f"({_share(above.request_share)}) of {format_bytes(above.requested_bytes)} "
            f"({_share(above.byte_share)} of its bytes)"
            for program, above in zip(self.programs, self.above, strict=True)
            if above.requests
        ]
        lines += [
            f"up to {limit}, without a class in {row.name}: "
            + "; ".join(
                f"{program}, {_requests(out)}"
                for program, out in zip(self.programs, row.excluded, strict=True)
                if out
            )
            for row in self.rows
            if not row.complete
        ]
        return lines


def _requests(count: float) -> str:
    return f"{format_count(count)} {'request' if count == 1 else 'requests'}"


def _share(share: float) -> str:
    return f"{100 * share:.3g}%"


def _cell(value: float, best: bool, width: int, part: bool = False) -> str:
    return f"{value:{width}.2f}{'*' if best else '+' if part else ' '}"


def league(
    profiles: Any,
    presets: str | Sequence[str] = "all",
    *,
    tables: Mapping[str, SizeMap] | None = None,
    limit_bytes: int = 65536,
    page_cap: float | None = None,
    page_bytes: int = 4096,
    names: Sequence[str] | None = None,
) -> League:
    """Compare what tables of size classes waste on programs.

    Parameters
    ----------
    profiles : profile, or sequence of profiles
        See `fit`; one for each program.
    presets : "all" or sequence of str
        Names as of `preset_names`.
    tables : mapping of str to SizeMap, optional
        Further tables, by name.
    limit_bytes : int, default 65536
        Larger requests are left out: allocators serve them by other means.
    page_cap, page_bytes : float or None, int
        A request wastes at most `page_cap` pages of `page_bytes`. None, the default: no limit, as
        of `pyallocx.presets.waste_percent`; `fit` and `wastage` have 2.
    names : sequence of str, optional
        Of the programs; by default those of the profiles.

    Returns
    -------
    League

    Raises
    ------
    ValueError
        For a preset that there is not, no profile, another number of names than of profiles, and a
        profile with no bytes up to the limit.

    Examples
    --------
    >>> table = league({32: 10, 130: 5}, ["jemalloc", "gperftools"])
    >>> [(row.name, round(row.mean_percent, 2)) for row in table.rows]
    [('gperftools', 7.22), ('jemalloc', 15.46)]
    """
    limit = integer("limit_bytes", limit_bytes, 1, MAX_BYTES)
    given = [profiles] if is_profile(profiles) else list(profiles)
    if not given:
        raise ValueError("there is no profile")
    if names is None:
        names = [str(getattr(p, "name", "") or f"program {i + 1}") for i, p in enumerate(given)]
    if len(names) != len(given):
        raise ValueError(f"{len(names)} names for {len(given)} profiles")
    histograms = [as_histogram(profile) for profile in given]
    for name, histogram in zip(names, histograms, strict=True):
        if not histogram.sizes[(histogram.sizes > 0) & (histogram.sizes <= limit)].size:
            raise ValueError(f"{name} requests no bytes in sizes up to {limit}")
    wanted = preset_names() if presets == "all" else presets
    entries = {name: preset(name) for name in wanted} | dict(tables or {})
    cap = None
    if page_cap is not None:
        page = integer("page_bytes", page_bytes, 1, 1 << 40)
        cap = math.floor(real("page_cap", page_cap, 1 / page, 1 << 12) * page)
    rows = [_row(name, table, histograms, limit, cap) for name, table in entries.items()]
    rows.sort(key=lambda row: (not row.complete, row.mean_percent, row.classes, row.name))
    above = tuple(_above(histogram, limit) for histogram in histograms)
    return League(tuple(names), tuple(rows), limit, above)


def _above(program: Histogram, limit: int) -> AboveLimit:
    larger = program.sizes > limit
    weights = program.counts * program.sizes
    count, size = math.fsum(program.counts[larger]), math.fsum(weights[larger])
    return AboveLimit(count, size, count / math.fsum(program.counts), size / math.fsum(weights))


def _row(
    name: str, table: SizeMap, programs: list[Histogram], limit: int, cap: int | None
) -> LeagueRow:
    usable = table.classes.astype(np.int64) - table.header_bytes
    percents, excluded = [], []
    for program in programs:
        percents.append(
            waste_percent(
                [int(size) for size in table.classes],
                table.header_bytes,
                program.sizes,
                program.counts,
                limit,
                cap,
            )
        )
        above = (program.sizes <= limit) & (program.sizes.astype(np.int64) > usable[-1])
        excluded.append(float(program.counts[above].sum()))
    number = min(len(usable), int(np.searchsorted(usable, limit, side="right")))
    mean = math.fsum(percents) / len(percents)
    return LeagueRow(name, number, tuple(percents), tuple(excluded), mean)


class Rival(NamedTuple):
    """A preset on the requests that a fit serves, by the measure of the fit."""

    name: str
    classes: int
    wastage_bytes: float
    percent: float


def rivals(fitted: Fit, presets: str | Sequence[str] = "all") -> tuple[Rival, ...]:
    """Measure presets on what a fit was made from, by the fit's measure.

    The requests are those that the fit serves, the cap is the fit's, the header is each
    allocator's own. A preset without a class for some of them is left out.

    Parameters
    ----------
    fitted : Fit
        The table to compare with.
    presets : "all" or sequence of str
        Names as of `preset_names`.

    Returns
    -------
    tuple of Rival
        The least wastage first; ``classes`` is how many serve the requests.

    Examples
    --------
    >>> import pyallocx as px
    >>> best = px.fit({24: 10, 100: 5}, 2, align_bytes=8)
    >>> best.wastage_bytes, [tuple(one) for one in rivals(best, ["jemalloc"])]
    (20, [('jemalloc', 8, 140, 18.91891891891892)])
    """
    most = int(fitted.classes[-1]) - int(fitted.constraints["header_bytes"])
    most -= most % int(fitted.constraints["request_align_bytes"])
    served = fitted._profile.sizes <= most
    part = Histogram(fitted._profile.sizes[served], fitted._profile.counts[served])
    largest = int(part.sizes[-1])
    found = []
    for name in preset_names() if presets == "all" else presets:
        table = preset(name)
        if int(table.usable[-1]) < largest:
            continue
        cost = wastage(
            table,
            part,
            page_bytes=fitted.constraints["page_bytes"],
            page_cap=fitted.constraints["page_cap"],
        )
        number = int(np.searchsorted(table.usable, np.uint64(largest))) + 1
        found.append(Rival(name, number, cost.wastage_bytes, cost.percent))
    return tuple(sorted(found, key=lambda one: (one.wastage_bytes, one.classes, one.name)))

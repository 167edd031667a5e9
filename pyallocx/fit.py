"""The size classes that waste least on a profile, with the proof.

The search is in C (``csrc/core/sizefit.h`` tells what is minimised, and why it is fast); here are
its constraints, its answer and what can be asked of it. A profile is anything with ``sizes`` and
``counts``, a pair of them, or a dict of size to count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pyallocx import _core
from pyallocx._constraints import Constraints, Grid, TailRule, constraints_of
from pyallocx._fittext import frame, headline, html, parts_lines, proof_text
from pyallocx._histogram import (
    F64,
    U64,
    Histogram,
    as_histogram,
    combined,
    factors_of,
    is_profile,
    rounded,
)
from pyallocx._sizes import integer
from pyallocx._systems import drive
from pyallocx._tablemap import MAX_CLASS, whole
from pyallocx.sizemap import SizeMap
from pyallocx.table import SweepResult

__all__ = [
    "METHODS",
    "Addition",
    "ClassCost",
    "Fit",
    "TailRule",
    "Wastage",
    "fit",
    "wastage",
]

#: Names of the solvers, in the order of the core's table.
METHODS: tuple[str, ...] = _core.FIT_METHODS

# Sums in the search are of up to requests * largest class * (1 + forced classes); where they are
# not exact, this part of it is rounding.
_NOISE = 2.0**-50


class ClassCost(NamedTuple):
    """What one class of a table costs on a profile; bytes are over all requests that it serves.

    ``alignment_bytes + rest_bytes + tail_bytes - capped_bytes`` is what it wastes;
    ``loss_bytes`` is what the table loses without it (inf for the largest: its requests would have
    no class).
    """

    class_bytes: int
    effective_bytes: float
    requests: float
    requested_bytes: float
    alignment_bytes: float
    rest_bytes: float
    tail_bytes: float
    capped_bytes: float
    loss_bytes: float

    @property
    def wastage_bytes(self) -> float:
        """What the class wastes, after the cap."""
        return self.alignment_bytes + self.rest_bytes + self.tail_bytes - self.capped_bytes


class Addition(NamedTuple):
    """One more class, and the bytes of wastage that it saves."""

    class_bytes: int
    saved_bytes: float


@dataclass(frozen=True)
class Wastage:
    """What a table of size classes wastes on a profile.

    Attributes
    ----------
    rows : tuple of ClassCost
        One per class, in order.
    excluded_count, excluded_bytes : float
        Requests above the largest class, and their bytes. No class serves them, so they are in
        none of the other numbers.
    """

    rows: tuple[ClassCost, ...]
    excluded_count: float
    excluded_bytes: float

    @property
    def classes(self) -> U64:
        """The classes in bytes, headers included, shape (K,), uint64."""
        return np.array([row.class_bytes for row in self.rows], dtype=np.uint64)

    @property
    def parts(self) -> dict[str, float]:
        """The wastage in bytes by its causes; the values add up to `wastage_bytes`.

        ``alignment_bytes``: rounding up to the alignment, which no table can avoid;
        ``rest_bytes``: from there to the class; ``tail_bytes``: the share of the end of a span
        that holds no object; ``capped_bytes`` (negative): of these, pages that are never touched.
        """
        totals = {
            name: _number(math.fsum(getattr(row, name) for row in self.rows))
            for name in ("alignment_bytes", "rest_bytes", "tail_bytes", "capped_bytes")
        }
        # What is capped is a part of the others; sums of fractions can come out a last digit above.
        most = totals["alignment_bytes"] + totals["rest_bytes"] + totals["tail_bytes"]
        totals["capped_bytes"] = -min(totals["capped_bytes"], most)
        return totals

    @property
    def wastage_bytes(self) -> float:
        """All wastage: the sum of `parts`."""
        return sum(self.parts.values())

    @property
    def requests(self) -> float:
        """Requests that a class serves."""
        return _number(math.fsum(row.requests for row in self.rows))

    @property
    def requested_bytes(self) -> float:
        """Bytes that they ask for, without headers."""
        return _number(math.fsum(row.requested_bytes for row in self.rows))

    @property
    def percent(self) -> float:
        """Wastage in percent of the requested bytes; NaN where none are requested."""
        requested = self.requested_bytes
        return 100 * self.wastage_bytes / requested if requested else math.nan

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per class.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return frame(self.rows)

    def __repr__(self) -> str:
        return "\n".join([f"<Wastage {headline(self)}>", *parts_lines(self)])

    def _repr_html_(self) -> str:
        return html(f"Wastage {headline(self)}", self)


@dataclass(frozen=True, eq=False)
class Fit:
    """The best size classes for a profile, and the proof that there are none better.

    Made by `fit`.

    Attributes
    ----------
    classes : numpy.ndarray
        The classes in bytes, headers included, shape (K,), uint64, rising.
    wastage_bytes : float
        What they waste on the profile; an int where it is exact.
    lower_bound_bytes : float
        No table of so many classes under these constraints wastes less. It comes from another
        argument than the classes: the value of the dual problem, in which a class has a price.
    constraints : dict
        What the table had to obey.
    method : str
        The solver: ``price``, ``divide``, ``quadratic`` (where ``monge`` is False, or asked for),
        or ``greedy``.
    monge : bool
        Whether the quadrangle condition holds, on which all solvers but the quadratic rest. A tail
        rule can break it.
    exact : bool
        Whether all sums were exact integers. Otherwise bound and gap include rounding, and what is
        at most ``2**-50 * requests * largest class`` (`noise_bytes`) counts as 0.
    spare : int
        How many of the classes asked for there are not, because nothing is left for them to save.
    seconds : float
        What the search took.
    excluded_count, excluded_bytes : float
        Requests above the largest class, and their bytes; no class serves them.
    """

    classes: U64
    wastage_bytes: float
    lower_bound_bytes: float
    constraints: dict[str, Any]
    method: str
    monge: bool
    exact: bool
    spare: int
    seconds: float
    excluded_count: float
    excluded_bytes: float
    _wanted: Constraints = field(repr=False)
    # With lsb_span: one for each lowest bit that there can be; _wanted is one of them.
    _options: tuple[Constraints, ...] = field(repr=False)
    _profile: Histogram = field(repr=False)
    _addition: Addition | None = field(repr=False)

    @property
    def gap(self) -> float:
        """`wastage_bytes` - `lower_bound_bytes`: 0 is a proof of optimality; see `proved`."""
        return self.wastage_bytes - self.lower_bound_bytes

    @property
    def proved(self) -> bool:
        """Whether no other table is better: the gap is 0, or no more than rounding explains.

        Rounding there is only where not `exact`, as with weights that are no whole numbers: 1e-9 of
        the wastage, and `noise_bytes`, the scale of the sums.
        """
        if self.exact:
            return self.gap == 0
        return self.gap <= 1e-9 * abs(self.wastage_bytes) + self.noise_bytes

    @property
    def noise_bytes(self) -> float:
        """By how much a wastage can be off because sums were rounded; 0 where they were exact."""
        return 0 if self.exact else _noise(self.table, self._wanted)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same answer to the same question; the time it took is no part."""
        if not isinstance(other, Fit):
            return NotImplemented
        return self._answer() == other._answer()

    def __hash__(self) -> int:
        return hash(self._answer())

    def _answer(self) -> tuple[Any, ...]:
        arrays = (self.classes, *self._profile)
        alone = (self.method, self.wastage_bytes, self.lower_bound_bytes, self.spare)
        return (*(array.tobytes() for array in arrays), self._wanted, *alone)

    @property
    def table(self) -> Wastage:
        """What each class costs on the profile that the table was made from."""
        return self.evaluate(self._profile)

    @property
    def parts(self) -> dict[str, float]:
        """The wastage by its causes, in bytes; see `Wastage.parts`."""
        return self.table.parts

    @property
    def floor_bytes(self) -> float:
        """What every table under these constraints wastes, however many classes it has."""
        return min(
            _evaluate(
                _start(self._profile, wanted).candidates(), self._profile, wanted
            ).wastage_bytes
            for wanted in self._options
        )

    def evaluate(self, profile: Any) -> Wastage:
        """Return what the table wastes on another profile, under the same header, cap and rule.

        Parameters
        ----------
        profile : profile
            See `fit`.

        Returns
        -------
        Wastage
        """
        return _evaluate(self.classes.tolist(), as_histogram(profile), self._wanted)

    def marginal(self) -> F64:
        """Return what the table loses without each class.

        Returns
        -------
        numpy.ndarray
            Bytes of wastage, shape (K,), float64: the table without the class is evaluated, its
            requests served by the next. The last is inf, since nothing serves the largest requests
            without it.
        """
        return np.array([row.loss_bytes for row in self.table.rows])

    def best_addition(self) -> Addition | None:
        """Return the class whose addition alone saves most; None where none saves anything.

        It need not be one that the best table of one class more has.
        """
        return self._addition

    def curve(self, up_to: int = 256) -> SweepResult:
        """Return the least wastage for each number of classes.

        Parameters
        ----------
        up_to : int, default 256
            The largest number of classes. The curve ends earlier where more classes save nothing.

        Returns
        -------
        SweepResult
            Columns ``classes`` (from the number of classes that must be there on),
            ``wastage_bytes``, ``wastage_percent`` (of the requested bytes; None where none are),
            ``saved_bytes`` (by the last class; None in the first row) and ``status``.

        See Also
        --------
        enough_classes : From which number on one more class saves next to nothing. `knee` of the
            table depends on where it begins: one class wastes so much that it draws the knee to
            the first few.

        Examples
        --------
        >>> best = fit({16: 10, 32: 5, 48: 1}, classes=1)
        >>> best.curve()["wastage_bytes"]
        array([400,  80,   0])
        """
        up_to = integer("up_to", up_to, 1, 2**32 - 1)
        least = len({*self._wanted.forced, self._wanted.largest_bytes})
        if up_to < least:
            raise ValueError(f"up_to is {up_to}, but {least} classes must be there")
        method = "quadratic" if self.method == "quadratic" else "divide"
        curves, most = [], 0
        for wanted in self._options:
            core = _start(self._profile, wanted)
            core.start(METHODS.index(method), up_to, curve=True)
            drive(core, 1, None)
            curves.append(core.curve())
            most = max(most, len(core.candidates()))
        noise = self.noise_bytes
        more, _ = _rounding([self._wanted.largest_bytes], self._profile, self._wanted)
        # A curve that ends early stays where it is.
        least_possible = np.full((len(curves), max(map(len, curves))), math.inf)
        for row, curve in zip(least_possible, curves, strict=True):
            row[:] = min(curve)
            row[: len(curve)] = curve
        values = least_possible.min(axis=0)
        if not self.exact:
            values[values <= noise] = 0
        values += more
        there = np.isfinite(values)
        ks = (np.flatnonzero(there) + 1).tolist()
        wasted = [_number(value, self.exact) for value in values[there].tolist()]
        saved = [None, *(a - b for a, b in pairwise(wasted))]
        # Of the requests that have a class: sizes rise, and rounding keeps their order.
        align = self._wanted.request_align_bytes
        most_bytes = (self._wanted.largest_bytes - self._wanted.header_bytes) // align * align
        served = int(np.searchsorted(self._profile.sizes, np.uint64(most_bytes), side="right"))
        requested = float(self._profile.sizes[:served] @ self._profile.counts[:served])
        return SweepResult(
            {
                "classes": ks,
                "wastage_bytes": wasted,
                "wastage_percent": [100 * w / requested if requested else None for w in wasted],
                "saved_bytes": saved,
                "status": ["ok"] * len(ks),
            },
            grid_keys=["classes"],
            system="size classes",
            x="wastage_bytes",
            y="classes",
            metadata={
                "labels": {"wastage_bytes": "wastage", "classes": "size classes"},
                "fixed": {n: v for n, v in self.constraints.items() if n != "classes"},
                # A curve so long is whole: there are no more classes that could be of use.
                "most_classes": most,
            },
        )

    def to_map(self, kind: str = "flat", **parameters: Any) -> SizeMap:
        """Return the table as a `SizeMap`.

        Parameters
        ----------
        kind : str, default "flat"
            How the map looks a size up.
        **parameters
            Further parameters of a `SizeMap`.

        Returns
        -------
        SizeMap

        Raises
        ------
        ValueError
            If a map of the kind cannot have these classes.

        Examples
        --------
        >>> fit({40: 3, 70: 1}, header_bytes=16).to_map().class_of(40 + 16)
        1
        """
        wanted = self._wanted
        # A map rounds a request up before the header is added; a header off the alignment would
        # then be added to what is rounded already.
        align = 1 if wanted.header_bytes % wanted.align_bytes else wanted.align_bytes
        align = max(align, wanted.request_align_bytes)
        given = {"header_bytes": wanted.header_bytes, "align_bytes": align}
        if kind == "table":
            # Steps and significant bits were counted above the header.
            given["delta_bytes"] = wanted.header_bytes
        return SizeMap(self.classes.tolist(), kind=kind, **(given | parameters))

    def export(self, format: str, *, name: str | None = None, **options: Any) -> str:
        """Write the table in the form that an allocator takes: `pyallocx.export`.

        Parameters
        ----------
        format : {"scudo", "flat", "tcmalloc", "go", "memcached", "json"}
            For whom.
        name : str, optional
            What the struct, table or list is called.
        **options
            Of the format, as `pyallocx.export` has them.

        Returns
        -------
        str
            Ends with a line feed.

        Raises
        ------
        ValueError, TypeError, CorruptionError
            Where `pyallocx.export` raises them.
        """
        from pyallocx.exports import export

        return export(self, format, name=name, **options)

    def check(self) -> None:
        """Solve again by the quadratic solver, which rests on no condition, and compare.

        Takes time in proportion to the number of classes and to the square of the candidates.

        Raises
        ------
        CorruptionError
            If the table does not cost what it says, or (``greedy`` aside) a better one was found.
        """
        again = _solve(self._profile, self._options, "quadratic", time.perf_counter())
        cost = self.table.wastage_bytes
        slack = 0 if self.exact else 1e-9 * (1 + abs(cost)) + self.noise_bytes
        if abs(cost - self.wastage_bytes) > slack:
            raise _core.CorruptionError(f"the table wastes {cost}, not {self.wastage_bytes} bytes")
        best = again.wastage_bytes
        if cost < best - slack or (self.method != "greedy" and cost > best + slack):
            raise _core.CorruptionError(f"the table wastes {cost} bytes, the best one {best}")

    def __repr__(self) -> str:
        return "\n".join(
            [f"<Fit {headline(self.table)}; proof: {proof_text(self)}>", *parts_lines(self.table)]
        )

    def _repr_html_(self) -> str:
        return html(f"Fit: {headline(self.table)}; proof: {proof_text(self)}", self.table)


def fit(
    profiles: Any,
    classes: int = 32,
    *,
    bits: int | None = None,
    header_bytes: int = 0,
    request_align_bytes: int = 1,
    align_bytes: int = 16,
    largest_bytes: int | None = None,
    forced: Sequence[int] = (),
    prefix: int | str | None = None,
    page_bytes: int = 4096,
    page_cap: float | None = 2,
    tail_rule: TailRule | str | None = None,
    grid: Grid | None = None,
    lsb_span: int | None = None,
    method: str = "auto",
    weights: str | Sequence[float] = "count",
) -> Fit:
    """Find the size classes that waste least on a profile.

    Minimised is the sum over all requests of ``min(effective(c) - (size + header_bytes), page_cap *
    page_bytes)``, c being the smallest class of at least ``size + header_bytes``, and
    ``effective(c)`` the class itself unless there is a tail rule.

    Parameters
    ----------
    profiles : profile, or sequence of profiles
        Anything with ``sizes`` and ``counts`` (such as a `Profile`), a tuple of two arrays, or a
        dict of size to count; a list of these is combined. Sizes from 0 to 2**48 bytes, counts
        finite and above 0.
    classes : int, default 32
        The largest number of classes. There are fewer where more would save nothing (``spare``).
    bits : int, optional
        At most so many significant bits in ``class - header_bytes``: what a size map of the
        logarithmic and the table kind can tell apart.
    header_bytes : int, default 0
        Added to every request.
    request_align_bytes : int, default 1
        To which requests are rounded up before the header is added, as by `SizeMap.need`; a power
        of two. It matters where the header is no multiple of the alignment. What the rounding adds
        is wastage, of the part ``alignment_bytes``, which no cap makes less.
    align_bytes : int, default 16
        Classes are multiples of it; a power of two.
    largest_bytes : int, optional
        The largest class; by default the smallest possible that holds every size (and every forced
        class). Larger requests are counted in ``excluded_count``, and cost nothing.
    forced : sequence of int
        Classes that must be there.
    prefix : int or "table", optional
        So many classes from ``header_bytes + align_bytes`` on, each one `align_bytes` further, must
        be there. ``"table"``: as many as scudo's table map with `bits` needs,
        ``2 ** (max(log2(align_bytes), bits - 1)) / align_bytes``.
    page_bytes, page_cap : int, float or None
        A request wastes at most `page_cap` pages, since a page that nobody touches takes no memory;
        None: no limit, as `league` has it by default.
    tail_rule : TailRule or "gperftools", optional
        How spans are chosen, so that the memory at their end counts.
    grid : sequence of (int or None, int), optional
        Steps by size: ``[(1024, 8), (None, 128)]`` allows multiples of 8 up to 1024 and of 128
        above. Up to four powers of two that do not fall, none below `align_bytes`; the last has no
        end.
    lsb_span : int, optional
        The lowest set bits of all classes are at most so far apart. Where it is 3 (and there are at
        most 32 classes) scudo packs them in two bits each. The table is the best over all choices
        of the lowest.
    method : str, default "auto"
        ``"price"``, ``"divide"`` or ``"quadratic"``: exact, and equal in what they find.
        ``"greedy"`` adds the best class at a time with full recomputation, for comparison.
    weights : str or sequence of float, default "count"
        How several profiles are combined: counts as they are, ``"equal"`` totals of counts,
        ``"bytes"``: equal totals of bytes, the default of `cross_validate` and of the command; or a
        factor for each.

    Returns
    -------
    Fit

    Raises
    ------
    TypeError
        If something is of a wrong type.
    ValueError
        If a profile is empty or has a count that is not above 0 and finite, if a value is out of
        range, or if the constraints leave no table; the message names the one.

    Notes
    -----
    With whole counts, and (sum of counts) * (largest class) * (1 + forced classes) below 2**53, all
    sums are exact and the table is the optimum to the byte. See ``docs/sizeclasses.md``.

    Examples
    --------
    >>> import pyallocx as px
    >>> best = px.fit({80: 1000, 96: 2, 128: 2}, classes=3, largest_bytes=65536)
    >>> best.classes, best.wastage_bytes, best.gap
    (array([   80,   128, 65536], dtype=uint64), 64, 0)
    >>> px.fit({80: 1000, 96: 2, 128: 2}, 3, largest_bytes=65536, method="greedy").wastage_bytes
    16000
    """
    started = time.perf_counter()
    profile = _joined(profiles, weights)
    options = constraints_of(
        profile,
        classes=classes,
        bits=bits,
        header_bytes=header_bytes,
        request_align_bytes=request_align_bytes,
        align_bytes=align_bytes,
        largest_bytes=largest_bytes,
        forced=forced,
        prefix=prefix,
        page_bytes=page_bytes,
        page_cap=page_cap,
        tail_rule=tail_rule,
        grid=grid,
        lsb_span=lsb_span,
    )
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, allowed are {', '.join(METHODS)}")
    return _solve(profile, options, method, started)


def _solve(profile: Histogram, options: Sequence[Constraints], method: str, started: float) -> Fit:
    results = []
    for wanted in options:
        core = _start(profile, wanted)
        core.start(METHODS.index(method), wanted.classes)
        drive(core, 1, None)
        core.check()
        results.append(core.result())
    best = min(range(len(results)), key=lambda i: results[i]["wastage_bytes"])
    result, wanted = results[best], options[best]
    exact = all(one["exact"] for one in results)
    # No table of any option is below its own bound.
    bound = min(one["lower_bound_bytes"] for one in results)
    # Rounding is the same for all of them: they serve the same requests.
    more, outside = _rounding([wanted.largest_bytes], profile, wanted)
    found = np.array(result["classes"], dtype=np.uint64)
    found.flags.writeable = False
    wasted, noise = result["wastage_bytes"] + more, 0.0
    if not exact:
        # Differences of rounded sums can be off, and even below 0, where what the table costs class
        # by class is a sum of numbers that are not: that is what counts, and bounds the bound.
        cost = _evaluate(found.tolist(), profile, wanted)
        noise = _noise(cost, wanted)
        wasted = cost.wastage_bytes
        bound = min(bound if bound > noise else 0.0, wasted - more)
    bound += more
    addition = None
    if result["addition_saves"] > noise:
        addition = Addition(result["addition"], _number(result["addition_saves"], exact))
    return Fit(
        classes=found,
        wastage_bytes=_number(wasted, exact),
        lower_bound_bytes=_number(bound, exact),
        constraints=wanted.as_dict(),
        method=METHODS[result["method"]],
        monge=bool(result["monge"]),
        exact=exact,
        spare=wanted.classes - len(found),
        seconds=time.perf_counter() - started,
        excluded_count=_number(result["excluded_count"]),
        excluded_bytes=_number(result["excluded_bytes"] - outside),
        _wanted=wanted,
        _options=tuple(options),
        _profile=profile,
        _addition=addition,
    )


def _start(profile: Histogram, wanted: Constraints) -> _core.SizeFit:
    asked = _as_asked(profile, wanted)
    return _core.SizeFit(asked.sizes, asked.counts, wanted.search(), wanted.forced)


def _as_asked(profile: Histogram, wanted: Constraints) -> Histogram:
    """Return a profile of requests rounded up, which is what the core sees of them."""
    if wanted.request_align_bytes == 1:
        return profile
    return as_histogram((rounded(profile.sizes, wanted.request_align_bytes), profile.counts))


def _rounding(classes: Sequence[int], profile: Histogram, wanted: Constraints) -> list[float]:
    """Return the bytes by which requests are rounded up, of each class, and of those with none."""
    if wanted.request_align_bytes == 1:
        return [0.0] * (len(classes) + 1)
    sizes = rounded(profile.sizes, wanted.request_align_bytes)
    table = np.array(classes, dtype=np.uint64)
    place = np.searchsorted(table, sizes + np.uint64(wanted.header_bytes))
    added = (sizes - profile.sizes) * profile.counts
    sums: list[float] = np.bincount(place, weights=added, minlength=len(table) + 1).tolist()
    return sums


def _joined(profiles: Any, weights: str | Sequence[float]) -> Histogram:
    if is_profile(profiles) or not isinstance(profiles, Iterable):
        one = as_histogram(profiles)
        # Alone, its weight changes nothing; a wrong one is a mistake all the same.
        factors_of([one], weights)
        return one
    return combined([as_histogram(profile) for profile in profiles], weights)


def wastage(
    classes: Any,
    profile: Any,
    *,
    header_bytes: int | None = None,
    request_align_bytes: int | None = None,
    align_bytes: int | None = None,
    page_bytes: int = 4096,
    page_cap: float | None = 2,
    tail_rule: TailRule | str | None = None,
) -> Wastage:
    """Evaluate a table of size classes on a profile.

    Parameters
    ----------
    classes : sequence of int, or a size map
        Rising; or anything with ``classes``, from which ``header_bytes`` and ``align_bytes`` are
        taken, too; each of its classes must then be the header and a multiple of the alignment.
    profile : profile
        See `fit`.
    header_bytes, align_bytes : int, optional
        Added to every request; what the parts call alignment. By default those of the map, or 0 and
        1.
    request_align_bytes : int, optional
        To which requests are rounded up before; by default that of a fit, or 1.
    page_bytes, page_cap, tail_rule
        See `fit`.

    Returns
    -------
    Wastage

    Raises
    ------
    TypeError, ValueError
        As `fit`; and for classes that do not rise, of which there are none, or the largest of which
        is at most the header.

    Examples
    --------
    >>> import pyallocx as px
    >>> cost = px.wastage([64, 128], {50: 10, 100: 1, 200: 3}, align_bytes=16)
    >>> cost.parts
    {'alignment_bytes': 152, 'rest_bytes': 16, 'tail_bytes': 0, 'capped_bytes': 0}
    >>> cost.wastage_bytes, cost.excluded_count
    (168, 3)
    """
    header = getattr(classes, "header_bytes", 0) if header_bytes is None else header_bytes
    align = getattr(classes, "align_bytes", 1) if align_bytes is None else align_bytes
    request_align = 1 if request_align_bytes is None else request_align_bytes
    if isinstance(classes, Fit):
        if request_align_bytes is None:
            request_align = classes._wanted.request_align_bytes
        header = classes._wanted.header_bytes if header_bytes is None else header
        align = classes._wanted.align_bytes if align_bytes is None else align
    given = np.asarray(getattr(classes, "classes", classes), dtype=object).reshape(-1).tolist()
    if not given:
        raise ValueError("classes is empty")
    table = [whole(f"class {i + 1}", size, 1, MAX_CLASS) for i, size in enumerate(given)]
    alike = align_bytes is None and header_bytes is None and request_align_bytes is None
    if alike and not isinstance(classes, Fit):
        # Such a map rounds requests up to the alignment before it looks for a class; that makes no
        # difference as long as no class ends in between.
        between = [size for size in table if align and (size - header) % align]
        if between:
            raise ValueError(
                f"class {between[0]} is not header_bytes ({header}) and a multiple of align_bytes "
                f"({align}): give both if requests are not to be rounded, else request_align_bytes"
            )
    histogram = as_histogram(profile)
    (wanted,) = constraints_of(
        histogram,
        classes=len(table),
        header_bytes=header,
        request_align_bytes=request_align,
        align_bytes=align,
        largest_bytes=None,
        page_bytes=page_bytes,
        page_cap=page_cap,
        tail_rule=tail_rule,
    )
    if table[-1] <= wanted.header_bytes:
        raise ValueError(
            f"header_bytes is {wanted.header_bytes}, which leaves nothing of the largest class "
            f"({table[-1]})"
        )
    return _evaluate(table, histogram, wanted)


def _evaluate(classes: Sequence[int], profile: Histogram, wanted: Constraints) -> Wastage:
    asked = _as_asked(profile, wanted)
    rows, count, size = _core.size_waste(asked.sizes, asked.counts, wanted.core(), classes)
    *added, outside = _rounding(classes, profile, wanted)
    costs = []
    for row, more in zip(rows, added, strict=True):
        cost = ClassCost(*row)
        cost = cost._replace(
            requested_bytes=cost.requested_bytes - more,
            alignment_bytes=cost.alignment_bytes + more,
        )
        costs.append(ClassCost(cost.class_bytes, *map(_number, cost[1:])))
    return Wastage(
        rows=tuple(costs), excluded_count=_number(count), excluded_bytes=_number(size - outside)
    )


def _noise(cost: Wastage, wanted: Constraints) -> float:
    return _NOISE * cost.requests * wanted.largest_bytes * (1 + len(wanted.forced))


def _number(value: float, exact: bool = True) -> float:
    """Return a whole number as an int; sums that were rounded stay floats."""
    return int(value) if exact and value.is_integer() and abs(value) < 2**53 else value

"""What a table of size classes has to obey, checked before the core sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from pyallocx import _core
from pyallocx._histogram import Histogram, rounded
from pyallocx._sizes import MAX_BYTES, integer, real

_MAX_HEADER = 1 << 32
_MOST_STEPS = 4
_NO_END = 2**64 - 1

#: Where steps end (None: nowhere), and the steps.
Grid = Sequence[tuple[int | None, int]]


@dataclass(frozen=True)
class TailRule:
    """How many pages a span of a class has, as in tcmalloc and Go.

    A span is divided into as many objects as fit; what is left at its end, the tail, is shared by
    them: an object costs ``pages * page_bytes / objects``. Chosen are the fewest pages whose tail
    is at most the fraction `max_tail` of them, `max_pages` at most. A class of more pages has a
    span of its own.

    Parameters
    ----------
    max_tail : float, default 1/8
        From 0 to 1.
    page_bytes : int, default 8192
        From 1 to 2**30.
    max_pages : int, default 32
        From 1 to 65536.
    fallback : str, default "cheapest"
        Where no number of pages will do: those that make the ``"cheapest"`` objects, or the
        ``"largest"`` number, where a loop over them stops. Under the latter a larger class can cost
        less than a smaller one.
    move_bytes : int, default 0
        gperftools moves ``move_bytes / class`` objects at a time, 2 to 32, and a span must hold a
        quarter of them (gperftools: 65536). 0: any number will do.

    Examples
    --------
    >>> TailRule.gperftools().effective_bytes(1152)
    1170.2857142857142
    """

    max_tail: float = 0.125
    page_bytes: int = 8192
    max_pages: int = 32
    move_bytes: int = 0
    fallback: str = "cheapest"

    def __post_init__(self) -> None:
        real("max_tail", self.max_tail, 0, 1)
        integer("page_bytes", self.page_bytes, 1, 1 << 30)
        integer("max_pages", self.max_pages, 1, 65536)
        integer("move_bytes", self.move_bytes, 0, MAX_BYTES)
        if self.fallback not in ("cheapest", "largest"):
            raise ValueError(f"fallback is {self.fallback!r}, allowed are 'cheapest', 'largest'")

    @classmethod
    def gperftools(cls) -> TailRule:
        """Return the rule of gperftools 2.10: pages of 8 KiB, a tail of at most an eighth."""
        return cls(move_bytes=65536)

    def core(self) -> dict[str, int]:
        """Return the rule as the core takes it."""
        fraction = Fraction(self.max_tail).limit_denominator(1_000_000)
        return {
            "span_page_bytes": self.page_bytes,
            "span_max_pages": self.max_pages,
            "span_move_bytes": self.move_bytes,
            "tail_num": fraction.numerator,
            "tail_den": fraction.denominator,
            "span_largest": self.fallback == "largest",
        }

    def effective_bytes(self, class_bytes: int) -> float:
        """Return what an object of a class costs: span bytes / objects."""
        size = integer("class_bytes", class_bytes, 1, MAX_BYTES)
        return _core.size_span(self.core(), size)[0]

    def span_pages(self, class_bytes: int) -> int:
        """Return the pages of a span of a class."""
        size = integer("class_bytes", class_bytes, 1, MAX_BYTES)
        return _core.size_span(self.core(), size)[1]


@dataclass(frozen=True)
class Constraints:
    """Constraints of a fit, all of them checked."""

    classes: int
    bits: int | None
    header_bytes: int
    request_align_bytes: int
    align_bytes: int
    largest_bytes: int
    forced: tuple[int, ...]
    prefix: int
    page_bytes: int
    page_cap: float | None
    tail_rule: TailRule | None
    grid: tuple[tuple[int | None, int], ...] = ()
    lsb_span: int | None = None
    lsb_base: int | None = None

    def allowed(self) -> dict[str, int]:
        """Return what the core takes to know which classes there may be."""
        found = {
            "align_bytes": max(self.align_bytes, 1 << (self.lsb_base or 0)),
            "header_bytes": self.header_bytes,
            "bits": self.bits or 0,
            "steps": len(self.grid),
        }
        for i, (end, step) in enumerate(self.grid):
            found[f"step_{i}"] = step
            found[f"step_end_{i}"] = _NO_END if end is None else end
        if self.lsb_base is not None and self.lsb_span is not None:
            found["odd_bits"] = self.lsb_base + self.lsb_span + 1
        return found

    def search(self) -> dict[str, int]:
        """Return what the core takes for a search; forced classes are handed over apart."""
        return self.core() | self.allowed()

    def core(self) -> dict[str, int]:
        """Return what the core takes to evaluate a table."""
        cap = 0 if self.page_cap is None else math.floor(self.page_cap * self.page_bytes)
        return {
            "align_bytes": self.align_bytes,
            "header_bytes": self.header_bytes,
            "largest_bytes": self.largest_bytes,
            "bits": self.bits or 0,
            "cap_bytes": cap,
            **(self.tail_rule.core() if self.tail_rule else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON can hold them."""
        rule = self.tail_rule
        return {
            "classes": self.classes,
            "bits": self.bits,
            "header_bytes": self.header_bytes,
            "request_align_bytes": self.request_align_bytes,
            "align_bytes": self.align_bytes,
            "largest_bytes": self.largest_bytes,
            "forced": list(self.forced),
            "prefix": self.prefix,
            "page_bytes": self.page_bytes,
            "page_cap": self.page_cap,
            "tail_rule": None if rule is None else asdict(rule),
            "grid": [list(piece) for piece in self.grid] or None,
            "lsb_span": self.lsb_span,
        }


def significant_bits(number: int) -> int:
    """Return the bits from the highest to the lowest 1 of a number; 0 has none.

    Examples
    --------
    >>> significant_bits(0b101000), significant_bits(64), significant_bits(0)
    (3, 1, 0)
    """
    return number.bit_length() - ((number & -number).bit_length() - 1) if number else 0


def lowest_bit(number: int) -> int:
    """Return the index of the lowest 1 of a number above 0.

    Examples
    --------
    >>> lowest_bit(0b101000)
    3
    """
    return (number & -number).bit_length() - 1


def _on_grid(name: str, size: int, wanted: Constraints) -> None:
    """Refuse a class that the constraints do not allow, by the one that does not."""
    header, bits = wanted.header_bytes, wanted.bits
    if size <= header:
        raise ValueError(f"{name} is {size}, which is no more than header_bytes ({header})")
    if size % wanted.align_bytes:
        raise ValueError(
            f"{name} is {size}, which is no multiple of align_bytes ({wanted.align_bytes})"
        )
    for end, step in wanted.grid:
        if end is None or size <= end:
            if size % step:
                raise ValueError(f"{name} is {size}, which is no multiple of {step} (grid)")
            break
    if bits is not None and significant_bits(size - header) > bits:
        raise ValueError(
            f"{name} is {size}, which has {significant_bits(size - header)} significant bits above "
            f"header_bytes ({header}); bits allows {bits}"
        )
    if wanted.lsb_base is not None and wanted.lsb_span is not None:
        most = wanted.lsb_base + wanted.lsb_span
        if not wanted.lsb_base <= lowest_bit(size) <= most:
            raise ValueError(
                f"{name} is {size}, the lowest set bit of which is {lowest_bit(size)}; lsb_span "
                f"({wanted.lsb_span}) allows {wanted.lsb_base} to {most} beside the others"
            )


def _grid_of(
    grid: Grid | None, header: int, align: int, bits: int | None
) -> tuple[tuple[int | None, int], ...]:
    if grid is None:
        return ()
    try:
        pairs = [(end, step) for end, step in grid]
    except (TypeError, ValueError):
        raise ValueError(f"grid is a sequence of (end or None, step), got {grid!r}") from None
    pieces = [(end, integer("a step of the grid", step, 1, 1 << 40)) for end, step in pairs]
    if not 1 <= len(pieces) <= _MOST_STEPS:
        raise ValueError(f"grid has {len(pieces)} steps, allowed are 1 to {_MOST_STEPS}")
    if pieces[-1][0] is not None:
        raise ValueError(f"grid ends at {pieces[-1][0]}; the last step must be (None, step)")
    bounds = [end for end, _ in pieces[:-1] if end is not None]
    if len(bounds) < len(pieces) - 1:
        raise ValueError("only the last step of the grid has no end")
    ends = [integer("an end of the grid", end, 1, MAX_BYTES) for end in bounds]
    if any(b <= a for a, b in pairwise(ends)):
        raise ValueError(f"the ends of the grid must rise, got {ends}")
    steps = [step for _, step in pieces]
    for before, step in pairwise([1, *steps]):
        if step & (step - 1) or step < before:
            raise ValueError(f"steps of the grid are powers of two that do not fall, got {steps}")
        if step < align:
            raise ValueError(
                f"grid has steps of {step}, but align_bytes ({align}) allows no class between its "
                "own"
            )
        if bits is not None and header % step:
            raise ValueError(
                f"grid has steps of {step}, of which header_bytes ({header}) is no multiple: with "
                "bits that leaves next to no class"
            )
    return tuple(zip([*ends, None], steps, strict=True))


def _power(name: str, value: int) -> int:
    number = integer(name, value, 1, _MAX_HEADER)
    if number & (number - 1):
        raise ValueError(f"{name} is {number}, which is no power of two")
    return number


def _prefix_of(prefix: int | str | None, align: int, bits: int | None) -> int:
    if prefix is None:
        return 0
    if prefix == "table":
        if bits is None:
            raise ValueError("prefix is 'table', which needs bits")
        return max(1, (1 << (bits - 1)) // align)
    if isinstance(prefix, str):
        raise ValueError(f"prefix is {prefix!r}, allowed are a number and 'table'")
    return integer("prefix", prefix, 0, 1 << 20)


def constraints_of(
    profile: Histogram,
    *,
    classes: int,
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
) -> list[Constraints]:
    """Check the constraints of `fit` against each other and a profile.

    Returns one; with `lsb_span` one for each lowest set bit that the lowest can be.
    """
    k = integer("classes", classes, 1, 2**32 - 1)
    header = integer("header_bytes", header_bytes, 0, _MAX_HEADER)
    align = _power("align_bytes", align_bytes)
    request_align = _power("request_align_bytes", request_align_bytes)
    smallest, greatest = (
        int(size) + header for size in rounded(profile.sizes[[0, -1]], request_align)
    )
    b = None if bits is None else integer("bits", bits, 1, 64)
    page = integer("page_bytes", page_bytes, 1, 1 << 40)
    if page_cap is not None:
        page_cap = real("page_cap", page_cap, 1 / page, 1 << 12)
        page_cap = int(page_cap) if page_cap.is_integer() else page_cap
    if tail_rule == "gperftools":
        tail_rule = TailRule.gperftools()
    if tail_rule is not None and not isinstance(tail_rule, TailRule):
        raise TypeError(f"tail_rule is a TailRule or 'gperftools', not {tail_rule!r}")

    pieces = _grid_of(grid, header, align, b)
    steps = _prefix_of(prefix, align, b)
    try:
        members = list(forced)
    except TypeError:
        raise TypeError(f"forced must be a sequence of integers, got {forced!r}") from None
    must = {integer("forced", size, 1, MAX_BYTES) for size in members}
    linear = {header + align * (i + 1) for i in range(steps)}
    between = sorted(size for size in must if linear and size < max(linear) and size not in linear)
    plain = Constraints(
        classes=k,
        bits=b,
        header_bytes=header,
        request_align_bytes=request_align,
        align_bytes=align,
        largest_bytes=0,
        forced=(),
        prefix=steps,
        page_bytes=page,
        page_cap=page_cap,
        tail_rule=tail_rule,
        grid=pieces,
    )

    def made(wanted: Constraints) -> Constraints:
        for size in sorted(must):
            _on_grid("a forced class", size, wanted)
        for size in sorted(linear):
            _on_grid("a class of the prefix", size, wanted)
        if between:
            raise ValueError(f"the forced class {between[0]} lies between classes of the prefix")
        return _completed(wanted, (smallest, greatest), must | linear, largest_bytes)

    if lsb_span is None:
        return [made(plain)]
    span = integer("lsb_span", lsb_span, 0, 62)
    found, refused = [], None
    fixed = must | linear | (set() if largest_bytes is None else {largest_bytes})
    # A base above the lowest bit of what must be there leaves that out, one above the largest need
    # leaves only classes that waste more.
    highest = min(
        (lowest_bit(size) for size in fixed if isinstance(size, int) and size > 0),
        default=greatest.bit_length(),
    )
    lowest = lowest_bit(align)
    for base in range(lowest, max(highest, lowest) + 1):
        try:
            found.append(made(replace(plain, lsb_span=span, lsb_base=base)))
        except ValueError as exc:
            refused = exc
    if not found and refused is not None:
        raise refused
    return found


def _completed(
    wanted: Constraints, needs: tuple[int, int], must: set[int], largest_bytes: int | None
) -> Constraints:
    """Return constraints with what must be there and the largest class.

    `needs` is what the smallest request and the largest one need, header and all.
    """
    smallest, greatest = needs
    k, header, align, b = wanted.classes, wanted.header_bytes, wanted.align_bytes, wanted.bits
    if largest_bytes is None:
        found = _core.size_round(wanted.allowed(), greatest)
        if not found:
            what = "" if wanted.lsb_span is None else f" with lsb_span={wanted.lsb_span}"
            why = f": header_bytes ({header}) is no multiple of align_bytes ({align})"
            raise ValueError(
                f"bits={b}{what} leaves no class for a need of {greatest}"
                f"{why if header % align else ''}"
            )
        largest = max(found, max(must, default=0))
    else:
        largest = integer("largest_bytes", largest_bytes, 1, MAX_BYTES + _MAX_HEADER)
        _on_grid("largest_bytes", largest, wanted)
        if must and max(must) > largest:
            raise ValueError(f"the forced class {max(must)} is above largest_bytes ({largest})")
        if largest < smallest:
            raise ValueError(
                f"largest_bytes is {largest}, but the smallest request needs {smallest} bytes"
            )
    least = len(must | {largest})
    if k < least and (must or largest_bytes is not None):
        raise ValueError(
            f"classes is {k}, but {least} must be there: {len(must)} forced ones and the largest"
        )
    return replace(wanted, largest_bytes=largest, forced=tuple(sorted(must)))

"""What a table of size classes has to obey, checked before the core sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from pyallocx._histogram import Histogram, rounded
from pyallocx._sizes import MAX_BYTES, integer, real

_MAX_HEADER = 1 << 32


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
        from pyallocx import _core

        size = integer("class_bytes", class_bytes, 1, MAX_BYTES)
        return _core.size_span(self.core(), size)[0]

    def span_pages(self, class_bytes: int) -> int:
        """Return the pages of a span of a class."""
        from pyallocx import _core

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

    def core(self) -> dict[str, int]:
        """Return what the core takes; forced classes are handed over apart."""
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
        }


def significant_bits(number: int) -> int:
    """Return the bits from the highest to the lowest 1 of a number; 0 has none.

    Examples
    --------
    >>> significant_bits(0b101000), significant_bits(64), significant_bits(0)
    (3, 1, 0)
    """
    return number.bit_length() - ((number & -number).bit_length() - 1) if number else 0


def round_up(need: int, header: int, align: int, bits: int | None) -> int | None:
    """Return the smallest class on the grid that holds `need` bytes; None where there is none."""
    need = max(need, header + 1)
    size = -(-need // align) * align
    if bits is None or significant_bits(size - header) <= bits:
        return size
    if header % align:
        return None  # all differences end in the same bits: a larger one has as many
    above = size - header
    step = 1 << (above.bit_length() - bits)
    return header + -(-above // step) * step


def _on_grid(name: str, size: int, header: int, align: int, bits: int | None) -> None:
    if size <= header:
        raise ValueError(f"{name} is {size}, which is no more than header_bytes ({header})")
    if size % align:
        raise ValueError(f"{name} is {size}, which is no multiple of align_bytes ({align})")
    if bits is not None and significant_bits(size - header) > bits:
        raise ValueError(
            f"{name} is {size}, which has {significant_bits(size - header)} significant bits above "
            f"header_bytes ({header}); bits allows {bits}"
        )


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
) -> Constraints:
    """Check the constraints of `fit` against each other and a profile."""
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

    steps = _prefix_of(prefix, align, b)
    try:
        members = list(forced)
    except TypeError:
        raise TypeError(f"forced must be a sequence of integers, got {forced!r}") from None
    must = {integer("forced", size, 1, MAX_BYTES) for size in members}
    for size in sorted(must):
        _on_grid("a forced class", size, header, align, b)
    linear = {header + align * (i + 1) for i in range(steps)}
    for size in sorted(linear):
        _on_grid("a class of the prefix", size, header, align, b)
    between = sorted(size for size in must if linear and size < max(linear) and size not in linear)
    if between:
        raise ValueError(f"the forced class {between[0]} lies between classes of the prefix")
    must |= linear
    if largest_bytes is None:
        found = round_up(greatest, header, align, b)
        if found is None:
            raise ValueError(
                f"bits={b} leaves no class for size {int(profile.sizes[-1])}: header_bytes "
                f"({header}) is no multiple of align_bytes ({align})"
            )
        largest = max(found, max(must, default=0))
    else:
        largest = integer("largest_bytes", largest_bytes, 1, MAX_BYTES + _MAX_HEADER)
        _on_grid("largest_bytes", largest, header, align, b)
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
    return Constraints(
        classes=k,
        bits=b,
        header_bytes=header,
        request_align_bytes=request_align,
        align_bytes=align,
        largest_bytes=largest,
        forced=tuple(sorted(must)),
        prefix=steps,
        page_bytes=page,
        page_cap=page_cap,
        tail_rule=tail_rule,
    )

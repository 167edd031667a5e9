"""Numbers as people write and read them: sizes with suffixes in, bytes with units out."""

from __future__ import annotations

import math
import re
from fractions import Fraction

__all__ = [
    "column_unit",
    "format_bytes",
    "format_cell",
    "format_count",
    "parse_bytes",
    "parse_count",
    "printable",
]

# A short exponent: what it writes out is a number of bytes, not a number that fills memory.
_NUMBER = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE]\+?[0-9]{1,2})?)\s*([A-Za-z]*)")
_BINARY = {"": 0, "b": 0, **{p + s: i for i, p in enumerate("kmgt", 1) for s in ("", "i", "ib")}}
_DECIMAL = {"": 0, "k": 1, "m": 2, "g": 3}
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _parse(text: str, base: int, suffixes: dict[str, int], allowed: str) -> int | float:
    stripped = text.strip()
    if stripped.lower() in ("inf", "infinity"):
        return math.inf
    match = _NUMBER.fullmatch(stripped)
    if match is None or match[2].lower() not in suffixes:
        raise ValueError(f"{text!r} is not a number; write {allowed}")
    factor: int = base ** suffixes[match[2].lower()]
    try:
        # No number passes through a float: sizes above 2**53 stay exact.
        value = Fraction(match[1]) * factor
    except ValueError:
        raise ValueError(f"{text!r} is not a number; write {allowed}") from None
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number ({float(value)})")
    return int(value)


def parse_bytes(text: str) -> int | float:
    """Read a number of bytes.

    Parameters
    ----------
    text : str
        A whole number (``1e3`` is one), or a number with a binary suffix: ``B``, ``K`` or ``KiB``
        (1024 bytes), ``M`` or ``MiB``, ``G`` or ``GiB``, ``T`` or ``TiB``, in either case; or
        ``inf``.

    Returns
    -------
    int or float
        Bytes; ``math.inf`` for ``inf``.

    Raises
    ------
    ValueError
        If `text` is none of these, or not a whole number of bytes. ``KB`` is refused because it
        means 1000 to some readers and 1024 to others.

    Examples
    --------
    >>> parse_bytes("2KiB"), parse_bytes("1.5M"), parse_bytes("inf")
    (2048, 1572864, inf)
    """
    return _parse(text, 1024, _BINARY, "bytes such as 2048, 2KiB, 1MiB or inf")


def parse_count(text: str) -> int | float:
    """Read a count: suffixes ``k``, ``M`` and ``G`` are powers of 1000, and ``inf`` is infinity.

    Raises
    ------
    ValueError
        If `text` is not a whole number.

    Examples
    --------
    >>> parse_count("16"), parse_count("10k")
    (16, 10000)
    """
    return _parse(text, 1000, _DECIMAL, "a count such as 16, 10k, 1M or inf")


def format_bytes(value: float, infinity: str = "inf") -> str:
    """Write bytes with the unit a person would choose, to three significant digits.

    Examples
    --------
    >>> [format_bytes(v) for v in (0, 256, 2048, 3175, 1 << 20)]
    ['0 B', '256 B', '2 KiB', '3.1 KiB', '1 MiB']
    """
    if math.isinf(value):
        return infinity if value > 0 else "-" + infinity
    scaled, unit = abs(value), 0
    # 1023.5 and more would be rounded to the four digits "1024".
    while scaled >= 1023.5 and unit + 1 < len(_BYTE_UNITS):
        scaled /= 1024
        unit += 1
    digits = _three_digits(scaled)
    # What is rounded to nothing has no sign.
    sign = "-" if value < 0 and digits != "0" else ""
    return f"{sign}{digits} {_BYTE_UNITS[unit]}"


def _three_digits(value: float) -> str:
    if value == int(value) or value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}".removesuffix(".0")


def format_count(value: float, infinity: str = "inf") -> str:
    """Write a count with thousands separators; a fraction keeps at most two decimals.

    Examples
    --------
    >>> format_count(1234567), format_count(12.345)
    ('1,234,567', '12.35')
    """
    if isinstance(value, float):
        if math.isinf(value):
            return infinity if value > 0 else "-" + infinity
        if value != int(value) and abs(value) < 1000:
            return f"{value:.2f}"
        return f"{value:,.0f}"
    return f"{value:,}"


def counted(value: float, noun: str) -> str:
    """Write a count with what is counted, in the plural unless it is one.

    Examples
    --------
    >>> counted(1, "class"), counted(0, "class"), counted(2000, "request")
    ('1 class', '0 classes', '2,000 requests')
    """
    ending = "" if value == 1 else "es" if noun.endswith("s") else "s"
    return f"{format_count(value)} {noun}{ending}"


def format_percent(value: float) -> str:
    """Write a percentage; ``-`` for NaN, which is one of nothing.

    Examples
    --------
    >>> format_percent(8.8312), format_percent(math.nan)
    ('8.83%', '-')
    """
    return "-" if math.isnan(value) else f"{value:.2f}%"


def column_unit(column: str) -> str:
    """Return ``"bytes"``, ``"ns"`` or ``""``: the unit that the name of a column states.

    Examples
    --------
    >>> column_unit("overhead_bytes_mean"), column_unit("duration_ns"), column_unit("pops")
    ('bytes', 'ns', '')
    """
    words = column.split("_")
    return "bytes" if "bytes" in words else "ns" if words[-1] == "ns" else ""


def printable(text: str) -> str:
    """Write control characters as escapes: text out of a file must not steer a terminal.

    Examples
    --------
    >>> printable("a" + chr(27)) == "a" + chr(92) + "x1b"
    True
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_cell(value: object, missing: str = "-") -> str:
    """Write one cell of a table: thousands separators, `missing` for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return missing
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return format_count(value)

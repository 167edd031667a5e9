"""What the readers of profiles share: lines, numbers, sums, errors."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, NoReturn

from pyallocx._core import TraceError
from pyallocx.codetraces._reader import raise_at
from pyallocx.profile import LARGEST_SIZE, Profile

__all__ = ["LineReader", "ProfileReader", "Refused", "pick_weight"]

_MOST_LINE_BYTES: Final = 1 << 16
# 4 Mi sizes are every byte up to 4 MiB: whoever has more has no histogram of requests, or wants to
# fill our memory.
_MOST_SIZES: Final = 1 << 22
_MOST_DIGITS: Final = 400

_DIGITS: Final = re.compile(rb"[0-9]+")
_DECIMAL: Final = re.compile(rb"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|\.[0-9]+([eE][-+]?[0-9]+)?")


class Refused(Exception):
    """What the format expects instead of what is there."""


class ProfileReader(ABC):
    """A reader of one format: fed with pieces, then asked for the profile.

    Parameters
    ----------
    weight : str, optional
        Which of the histograms, where the format carries several.
    """

    sizes: ClassVar[str]
    """What the sizes are."""
    weights: ClassVar[tuple[str, ...]] = ()
    """The weights that the format carries; empty: one histogram, whatever it is of."""

    def __init__(self, weight: str | None = None) -> None:
        self.weight = pick_weight(weight, self.weights)
        self.counts: dict[int, int | float] = {}
        self.about: dict[str, Any] = {}

    @abstractmethod
    def feed(self, data: bytes, /) -> None:
        """Read a piece, which may end anywhere."""

    @abstractmethod
    def finish(self) -> None:
        """Read what is left after the last piece."""

    def add(self, size: int, count: int | float) -> None:
        """Add to the count of a size."""
        if size > LARGEST_SIZE:
            raise Refused("expected a size of at most 2**48 bytes")
        if size not in self.counts and len(self.counts) >= _MOST_SIZES:
            raise Refused(f"expected at most {_MOST_SIZES:,} different sizes")
        total = self.counts.get(size, 0) + count
        # Integers add up to what no float holds as well.
        if total > 1e300:
            raise Refused("expected counts that add up to less than 1e300")
        self.counts[size] = total

    def add_mean(self, size: int, count: int) -> bool:
        """Add to the counts of the mean of so many bytes in so many blocks; whether it has a part.

        Where it has, some blocks go below it and some above, so that both sums are exact.
        """
        if not count:
            if size:
                raise Refused(f"expected no bytes in no blocks, found {size}")
            return False
        mean, larger = divmod(size, count)
        if larger:
            self.add(mean + 1, larger)
        self.add(mean, count - larger)
        return larger > 0

    def profile(self, name: str, metadata: dict[str, Any]) -> Profile:
        """Return what was read."""
        if not self.counts:
            raise TraceError("it holds no size")
        about = {**metadata, "weight": self.weight, "sizes": self.sizes, **self.about}
        try:
            return Profile(list(self.counts), list(self.counts.values()), name=name, metadata=about)
        except ValueError as error:
            raise TraceError(str(error)) from None


def pick_weight(weight: str | None, carried: tuple[str, ...]) -> str:
    """Return the weight to read, and refuse one that the format has not."""
    if not carried:
        return "as written"
    if weight is None:
        return carried[0]
    if weight not in carried:
        raise ValueError(
            f"this format carries no weight {weight!r}, only {', '.join(map(repr, carried))}"
        )
    return weight


def whole(text: bytes, what: str, least: int = 0) -> int:
    """Return what digits say."""
    if not _DIGITS.fullmatch(text) or len(text) > _MOST_DIGITS:
        raise Refused(f"expected {what} as a whole number")
    value = int(text)
    if value < least:
        raise Refused(f"expected {what} of at least {least}")
    return value


def decimal(text: bytes, what: str, *, zero: bool = False) -> int | float:
    """Return what a number with or without a fraction says: finite, and above 0 unless `zero`."""
    if not _DECIMAL.fullmatch(text) or len(text) > _MOST_DIGITS:
        raise Refused(f"expected {what} as a number without a sign")
    value = int(text) if _DIGITS.fullmatch(text) else float(text)
    if isinstance(value, float) and math.isinf(value):
        raise Refused(f"expected {what} that fits a float")
    if not value and not zero:
        raise Refused(f"expected {what} above 0")
    return value


class LineReader(ProfileReader):
    """A reader of a format made of lines, which may end in CR LF."""

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(weight)
        self._rest = b""
        self.line = 0

    @abstractmethod
    def parse(self, line: bytes) -> None:
        """Read one line, without its end; `Refused` where it is not allowed."""

    def end(self) -> None:
        """Look at what was read when there is no more; `Refused` where something is missing."""

    def feed(self, data: bytes, /) -> None:
        """Read a piece; the line that is cut at its end waits for the next."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._read(line)
        if len(self._rest) > _MOST_LINE_BYTES + 1:
            self._read(self._rest)

    def finish(self) -> None:
        """Read the last line, which may lack its end, and check that nothing is missing."""
        if self._rest:
            self._read(self._rest)
        try:
            self.end()
        except Refused as refused:
            raise TraceError(f"line {self.line + 1}: {refused}, found the end") from None

    def _read(self, line: bytes) -> None:
        self.line += 1
        if line.endswith(b"\r"):
            line = line[:-1]
        try:
            if len(line) > _MOST_LINE_BYTES:
                raise Refused(f"expected a line of at most {_MOST_LINE_BYTES} bytes")
            self.parse(line)
        except Refused as refused:
            self._raise(refused, line)

    def _raise(self, refused: Refused, line: bytes) -> NoReturn:
        raise_at(f"line {self.line}", str(refused), line)

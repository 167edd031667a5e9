"""A progress bar on standard error, where somebody is there to see it."""

from __future__ import annotations

import sys
from typing import Protocol

from tqdm import tqdm


class Bar(Protocol):
    """What the users of a bar need of it."""

    def update(self, n: float | None = ..., /) -> bool | None:
        """Advance by `n`."""

    def close(self) -> None:
        """Remove the bar."""


class _NoBar:
    def update(self, n: float | None = 1, /) -> bool | None:
        return None

    def close(self) -> None:
        return None


def progress_bar(
    total: int, description: str, unit: str, *, wanted: bool | None, long: bool
) -> Bar:
    """Make a bar, or something that takes updates and shows nothing.

    Parameters
    ----------
    total : int
        The units of the whole.
    description : str
        What goes on, a few words.
    unit : str
        The unit, such as ``"B"`` or ``" events"``.
    wanted : bool or None
        True and False decide. None shows a bar where the work is long and standard error is a
        terminal.
    long : bool
        Whether the work is worth a bar.

    Returns
    -------
    Bar
    """
    if wanted is None:
        wanted = long and sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        return _NoBar()
    return tqdm(total=total, desc=description, unit=unit, unit_scale=True, leave=False)

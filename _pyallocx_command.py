"""The command ``pyallocx``, outside of the package, whose import takes the time of NumPy's."""

from __future__ import annotations

import os
import signal
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    # An exception in the middle of an import may come out as any other, or not at all.
    os._exit(130)


def main() -> int:
    """Run the command line; Ctrl-C ends it with 130, also while it is being imported."""
    handler = signal.getsignal(signal.SIGINT)
    # Where Ctrl-C is ignored, as in the background of a script, it stays so.
    handled = handler is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, _leave)
    from pyallocx.cli import main as run

    if handled:
        signal.signal(signal.SIGINT, handler)
    return run()

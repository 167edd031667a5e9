"""pyallocx: replay real allocation traces under every allocator policy."""

from pyallocx._core import CorruptionError, InvalidFree, PoisonError, TraceError
from pyallocx.sweep import Control, SweepCancelled, sweep
from pyallocx.table import SweepResult

__all__ = [
    "Control",
    "CorruptionError",
    "InvalidFree",
    "PoisonError",
    "SweepCancelled",
    "SweepResult",
    "TraceError",
    "sweep",
]

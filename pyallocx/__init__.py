"""pyallocx: replay real allocation traces under every allocator policy."""

from pyallocx._core import CorruptionError, InvalidFree, PoisonError, TraceError

__all__ = ["CorruptionError", "InvalidFree", "PoisonError", "TraceError"]

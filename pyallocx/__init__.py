"""pyallocx: replay real allocation traces under every allocator policy."""

from pyallocx._core import CorruptionError, InvalidFree, PoisonError, TraceError
from pyallocx.data import load_shipped, shipped
from pyallocx.synth import synthesize
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Trace, load

__all__ = [
    "OP_ALLOC",
    "OP_DESTROY",
    "OP_FREE",
    "OP_REALLOC",
    "CorruptionError",
    "InvalidFree",
    "PoisonError",
    "Trace",
    "TraceError",
    "load",
    "load_shipped",
    "shipped",
    "synthesize",
]

"""pyallocx: replay real allocation traces under every allocator policy."""

from pyallocx._core import CorruptionError, InvalidFree, PoisonError, TraceError
from pyallocx.arena import Arena, ArenaReplay, replay_arena
from pyallocx.chunkmap import chunk_map, chunk_map_text
from pyallocx.code import CodeReplay, replay_code
from pyallocx.codetraces.synthetic import synthesize_code
from pyallocx.data import load_shipped, shipped
from pyallocx.sweep import Control, SweepCancelled, sweep
from pyallocx.synth import synthesize
from pyallocx.table import SweepResult
from pyallocx.trace import OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Trace, load

__all__ = [
    "OP_ALLOC",
    "OP_DESTROY",
    "OP_FREE",
    "OP_REALLOC",
    "Arena",
    "ArenaReplay",
    "CodeReplay",
    "Control",
    "CorruptionError",
    "InvalidFree",
    "PoisonError",
    "SweepCancelled",
    "SweepResult",
    "Trace",
    "TraceError",
    "chunk_map",
    "chunk_map_text",
    "load",
    "load_shipped",
    "replay_arena",
    "replay_code",
    "shipped",
    "sweep",
    "synthesize",
    "synthesize_code",
]

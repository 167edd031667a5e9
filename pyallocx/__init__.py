"""pyallocx: replay real allocation traces under every allocator policy."""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from pyallocx._core import CorruptionError, InvalidFree, PoisonError, TraceError
from pyallocx._fittext import enough_classes
from pyallocx._tracejoin import concatenate, interleave
from pyallocx.arena import Arena, ArenaReplay, replay_arena
from pyallocx.chunkmap import chunk_map, chunk_map_text
from pyallocx.code import CodeHeap, CodeReplay, replay_code
from pyallocx.codetraces.synthetic import synthesize_code
from pyallocx.crossfit import CrossValidation, cross_validate
from pyallocx.data import load_shipped, shipped
from pyallocx.exports import export
from pyallocx.fit import Fit, TailRule, Wastage, fit, wastage
from pyallocx.formats import Format, formats
from pyallocx.league import League, league
from pyallocx.mappings import mappings_trace
from pyallocx.presets import preset, preset_classes, preset_knobs, preset_names
from pyallocx.profile import Profile, load_profile, load_profile_or_trace
from pyallocx.recorder import ProgramRecording, RecordingError, UnknownProgram, record, record_run
from pyallocx.sizemap import SizeMap, table_violations
from pyallocx.sweep import Control, SweepCancelled, sweep
from pyallocx.synth import synthesize
from pyallocx.table import SweepResult
from pyallocx.trace import CALLS, OP_ALLOC, OP_DESTROY, OP_FREE, OP_REALLOC, Trace, load
from pyallocx.writers import write

__all__ = [
    "CALLS",
    "OP_ALLOC",
    "OP_DESTROY",
    "OP_FREE",
    "OP_REALLOC",
    "Arena",
    "ArenaReplay",
    "CodeHeap",
    "CodeReplay",
    "Control",
    "CorruptionError",
    "CrossValidation",
    "Fit",
    "Format",
    "InvalidFree",
    "League",
    "PoisonError",
    "Profile",
    "ProgramRecording",
    "RecordingError",
    "SizeMap",
    "SweepCancelled",
    "SweepResult",
    "TailRule",
    "Trace",
    "TraceError",
    "UnknownProgram",
    "Wastage",
    "__version__",
    "chunk_map",
    "chunk_map_text",
    "concatenate",
    "cross_validate",
    "enough_classes",
    "export",
    "fit",
    "formats",
    "interleave",
    "league",
    "load",
    "load_profile",
    "load_profile_or_trace",
    "load_shipped",
    "mappings_trace",
    "preset",
    "preset_classes",
    "preset_knobs",
    "preset_names",
    "record",
    "record_run",
    "replay_arena",
    "replay_code",
    "shipped",
    "sweep",
    "synthesize",
    "synthesize_code",
    "table_violations",
    "wastage",
    "write",
]

try:
    __version__ = _version("pyallocx")
except _PackageNotFoundError:  # a tree that was built but not installed
    __version__ = "unknown"

"""Hypothesis strategies and state machines for allocators: ours, and yours.

`traces` draws valid traces. `ArenaMachine` drives an arena against the plain-Python twin; point its
``make`` at your own allocator to test that. `wrong_arenas` are arenas with one deliberate mistake
each, to see that a test can fail. `CodeHeapMachine` does for code heaps what `ArenaMachine` does
for arenas, and `find_split_failure` hunts for the smallest parameters with which a policy's split
arithmetic goes wrong.
"""

from pyallocx.testing.code import (
    CodeBlocks,
    CodeHeapMachine,
    SplitFailure,
    code_parameters,
    find_split_failure,
    least_limit,
)
from pyallocx.testing.machines import ArenaMachine, arena_parameters
from pyallocx.testing.strategies import traces
from pyallocx.testing.variants import ReferenceArena, wrong_arenas

__all__ = [
    "ArenaMachine",
    "CodeBlocks",
    "CodeHeapMachine",
    "ReferenceArena",
    "SplitFailure",
    "arena_parameters",
    "code_parameters",
    "find_split_failure",
    "least_limit",
    "traces",
    "wrong_arenas",
]

"""Hypothesis strategies and state machines for allocators: ours, and yours.

`traces` draws valid traces. `ArenaMachine` drives an arena against the plain-Python twin; point its
``make`` at your own allocator to test that. `wrong_arenas` are arenas with one deliberate mistake
each, to see that a test can fail.
"""

from pyallocx.testing.machines import ArenaMachine, arena_parameters
from pyallocx.testing.strategies import traces
from pyallocx.testing.variants import ReferenceArena, wrong_arenas

__all__ = ["ArenaMachine", "ReferenceArena", "arena_parameters", "traces", "wrong_arenas"]

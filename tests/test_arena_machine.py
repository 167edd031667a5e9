"""The arena against its twin, and the twin's wrong sisters against the test."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import pyallocx as px
from pyallocx.arena import POLICIES
from pyallocx.testing import ArenaMachine, ReferenceArena, arena_parameters, wrong_arenas

SETTINGS = settings(suppress_health_check=list(HealthCheck), stateful_step_count=30)
# A conviction may take more examples than the profile gives; it stops at the first.
HUNT = settings(SETTINGS, max_examples=1000, phases=[Phase.generate], database=None)


# The policy in which each mistake shows.
POLICY_OF = {
    "ShrinkLosesAnEntry": "low_water",
    "RestartsHigh": "release",
    "WindowForgetsThisEpisode": "peak_window",
    "BudgetLeaks": "budget",
    "AgeNeverResets": "age",
}


def machine(**attributes):
    attributes = {"can_share": True, "can_fail": True} | attributes
    return type("Machine", (ArenaMachine,), attributes)


@pytest.mark.parametrize("policy", POLICIES)
def test_arena_agrees_with_twin(policy):
    run_state_machine_as_test(machine(parameters=arena_parameters((policy,))), settings=SETTINGS)


def test_twin_agrees_with_itself():
    run_state_machine_as_test(machine(make=ReferenceArena, can_fail=False), settings=SETTINGS)


@pytest.mark.parametrize("name", wrong_arenas)
def test_wrong_arena_is_caught(name):
    parameters = arena_parameters((POLICY_OF.get(name, "byte_cut"),))
    wrong = machine(make=wrong_arenas[name], parameters=parameters, can_fail=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(wrong, settings=HUNT)


def test_make_may_be_a_method():
    class Mine(ArenaMachine):
        def make(self, **params):
            return ReferenceArena(**params)

    run_state_machine_as_test(Mine, settings=settings(SETTINGS, max_examples=3))


def test_an_arena_needs_no_more_than_the_documented_methods():
    class Six:
        def __init__(self, **params):
            self.inner = px.Arena(**params)

        def alloc(self, key, size_bytes):
            return self.inner.alloc(key, size_bytes)

        def free(self, key, handle):
            self.inner.free(key, handle)

        def view(self, handle):
            return self.inner.view(handle)

        def stats(self):
            return self.inner.stats()

        def check(self):
            self.inner.check()

        def close(self):
            self.inner.close()

    class Mine(ArenaMachine):
        def make(self, **params):
            return Six(**params)

    run_state_machine_as_test(Mine, settings=SETTINGS)

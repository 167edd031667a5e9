"""What all tests share: hypothesis profiles, and where data and the source tree are."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

ROOT = Path(__file__).resolve().parent.parent

# No profile looks at the clock: the machines that run this are shared. What hypothesis would choose
# by itself where CI is set is said here.
#
# dev    random examples, other ones every time; failures are remembered
# deep   as dev, for a night
# ci     the same examples every time, so that a run judges the change and not the draw; a failure
#        prints the line that repeats it
# quick  as ci with few examples: sanitizers, wheels
# mutate as ci, but a failure is not made smaller: that there is one is all that is asked
settings.register_profile(
    "dev",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
    print_blob=True,
    max_examples=50,
)
settings.register_profile("deep", settings.get_profile("dev"), max_examples=5000)
settings.register_profile(
    "ci", settings.get_profile("dev"), derandomize=True, database=None, max_examples=100
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=15)
settings.register_profile(
    "mutate", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory of the real traces, which are too large for the repository."""
    named = os.environ.get("PYALLOCX_SHARED_DATA")
    path = Path(named) if named else ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no data in {path}; PYALLOCX_SHARED_DATA names it")
    return path


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the source tree, for tests of what is not part of the package."""
    if not (ROOT / "setup.py").exists():
        pytest.skip("not in a source tree")
    return ROOT

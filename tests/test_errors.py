"""The exceptions of the package: what they are caught as is part of the interface."""

import pytest

import pyallocx


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("InvalidFree", ValueError),
        ("PoisonError", RuntimeError),
        ("TraceError", ValueError),
        ("CorruptionError", RuntimeError),
    ],
)
def test_bases(name, base):
    exception = getattr(pyallocx, name)
    assert exception.__bases__ == (base,)
    assert exception.__module__ == "pyallocx"
    assert exception.__doc__

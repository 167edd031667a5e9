"""What a recorded program is started with; no recorder is needed for these."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyallocx as px
from pyallocx.recorder import _preloads


def test_our_library_comes_first_and_others_stay(tmp_path: Path) -> None:
    assert _preloads("/a/record.so", str(tmp_path), None) == "/a/record.so"
    assert _preloads("/a/record.so", str(tmp_path), "") == "/a/record.so"
    assert _preloads("/a/record.so", str(tmp_path), "b.so:c.so") == "/a/record.so:b.so:c.so"


@pytest.mark.parametrize("place", ["a b", "a:b", "$LIB", "a\tb", "a;b"])
def test_a_name_that_the_loader_does_not_take_gets_another(tmp_path: Path, place: str) -> None:
    library = tmp_path / place / "record.so"
    library.parent.mkdir()
    library.write_text("library")
    made = _preloads(str(library), str(tmp_path), None)
    assert Path(made).read_text() == "library"
    assert place not in made
    with pytest.raises(px.UnknownProgram, match="takes no name with a blank"):
        _preloads(str(library), str(library.parent), None)

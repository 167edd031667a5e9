"""The picture of a profile."""

import pytest

import pyallocx as px

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402


def new_ax():
    return Figure(figsize=(8, 5)).add_subplot()


def test_the_curve_is_the_share_up_to_each_size():
    profile = px.Profile([16, 64, 4096], [6, 3, 1], name="a")
    ax = new_ax()
    assert profile.plot(ax=ax, weighted="count") is ax
    (curve,) = [line for line in ax.lines if line.get_label() == "a"]
    assert list(curve.get_xdata()) == [16, 16, 64, 4096]
    assert list(curve.get_ydata()) == [0, 60, 90, 100]
    title = ax.get_title(loc="left")
    assert "half of the count up to 16 B; 90% of the count up to 64 B" in title
    assert ax.get_xscale() == "symlog"


def test_several_in_one_picture():
    ax = new_ax()
    for name in ("a$", "b", "c"):
        px.Profile([16, 64, 4096], [6, 3, 1], name=name).plot(ax=ax)
    assert len(ax.lines) == 3
    assert len({line.get_color() for line in ax.lines}) == 3
    assert len(ax.get_legend().get_texts()) == 3
    ax.figure.canvas.draw()


@pytest.mark.parametrize("sizes", [[0, 5], [7], [0], [1, 2**48]])
def test_odd_sizes(sizes, tmp_path):
    profile = px.Profile(sizes, [1] * len(sizes))
    profile.plot(weighted="count", path=tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_refuses():
    with pytest.raises(ValueError, match="no bytes"):
        px.Profile([0], [1]).plot(ax=new_ax())
    with pytest.raises(ValueError, match="weighted"):
        px.Profile([1], [1]).plot(ax=new_ax(), weighted="size")
    with pytest.raises(ValueError, match="picture format"):
        px.Profile([1], [1]).plot(path="x.doc")

"""Fits to requests that are rounded up before the header is added."""

import numpy as np
import pytest

import pyallocx as px


@pytest.mark.parametrize(
    ("header", "align", "request_align"),
    [(8, 16, 16), (8, 8, 16), (0, 8, 32), (16, 16, 16), (5, 4, 2)],
)
@pytest.mark.parametrize("method", ["price", "divide", "quadratic", "greedy"])
def test_requests_are_rounded_before_the_header(header, align, request_align, method):
    rng = np.random.default_rng(3)
    profile = px.Profile(rng.integers(0, 3000, 150), rng.integers(1, 50, 150))
    up = -(-profile.sizes.astype(int) // request_align) * request_align
    options = {"header_bytes": header, "align_bytes": align, "method": method, "page_cap": None}
    for largest in (None, 2048):
        options["largest_bytes"] = largest
        best = px.fit(profile, 9, request_align_bytes=request_align, **options)
        # The same as a program that asks for the rounded sizes, which wastes what they add.
        asked = px.fit((up, profile.counts), 9, **options)
        assert best.classes.tolist() == asked.classes.tolist()
        served = up + header <= best.classes[-1]
        added = int(((up - profile.sizes.astype(int)) * profile.counts)[served].sum())
        assert best.wastage_bytes == asked.wastage_bytes + added == best.table.wastage_bytes
        assert best.gap == asked.gap
        assert best.floor_bytes == asked.floor_bytes + added
        assert best.parts["alignment_bytes"] == asked.parts["alignment_bytes"] + added
        assert best.table.requested_bytes + best.excluded_bytes == profile.total_bytes
        assert best.table.excluded_bytes == best.excluded_bytes
        if method != "greedy":
            assert best.curve(9)["wastage_bytes"][-1] == best.wastage_bytes
        best.check()
        # What the fit counts for a class is what the map gives it.
        sizes = best.to_map()
        ids = sizes.class_of(sizes.need(profile.sizes))
        counted = np.bincount(ids, weights=profile.counts, minlength=10)
        assert counted.tolist() == [best.excluded_count, *(row.requests for row in best.table.rows)]
        given = sizes.usable[np.maximum(ids, 1) - 1].astype(int) - profile.sizes.astype(int)
        assert best.wastage_bytes == (given * profile.counts)[ids > 0].sum()
        assert px.wastage(best, profile, page_cap=None).rows == best.table.rows
        again = px.wastage(
            best.classes.tolist(),
            profile,
            header_bytes=header,
            align_bytes=align,
            request_align_bytes=request_align,
            page_cap=None,
        )
        assert again.rows == best.table.rows


def test_a_request_of_20_bytes_under_a_header_of_8():
    plain = px.fit({20: 1}, 1, header_bytes=8, align_bytes=8)
    scudo = px.fit({20: 1}, 1, header_bytes=8, align_bytes=8, request_align_bytes=16)
    assert (plain.classes.tolist(), scudo.classes.tolist()) == ([32], [40])
    assert scudo.to_map().need(20) == 40
    with pytest.raises(ValueError, match="request_align_bytes is 3, which is no power of two"):
        px.fit({20: 1}, 1, request_align_bytes=3)
    with pytest.raises(ValueError, match="the smallest request needs 40 bytes"):
        px.fit({20: 1}, 1, header_bytes=8, align_bytes=8, request_align_bytes=16, largest_bytes=32)
    programs = [{20: 1, 100: 3}, {36: 2, 50: 1}]
    found = px.cross_validate(
        programs, 2, header_bytes=8, align_bytes=8, request_align_bytes=16, draws=0
    )
    assert found.pooled.constraints["request_align_bytes"] == 16

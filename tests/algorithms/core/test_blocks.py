"""Blocks: neighbours, at most so many together, and never of two sites."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.core.fleet import SEVERAL, common_site, cut


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 9))
def test_cuts_cover_all_and_mix_no_sites(sites: list[int], size: int) -> None:
    parts = cut(len(sites), size, np.array(sites, np.int64))
    assert [place for part in parts for place in range(part.start, part.stop)] == list(range(len(sites)))
    assert all(len(set(sites[part])) == 1 and len(sites[part]) <= size for part in parts)
    # No more of them than must be: two neighbours of one site only where the first is full.
    assert all(sites[a][0] != sites[b][0] or len(sites[a]) == size for a, b in pairwise(parts))


@pytest.mark.parametrize(("count", "size", "bounds"), [(0, 3, []), (7, 3, [0, 3, 6]), (3, 9, [0])])
def test_without_sites_only_the_size_cuts(count: int, size: int, bounds: list[int]) -> None:
    assert [part.start for part in cut(count, size)] == bounds


def test_clients_of_several_sites_have_none_in_common() -> None:
    assert [common_site(sites) for sites in (None, [], [3, 3], [3, 4])] == [None, None, 3, SEVERAL]

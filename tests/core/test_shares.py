"""Who has the most."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.shares import Shares, client_prefix


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-40, 40))))
def test_who_has_the_most_is_as_counted(steps: list[tuple[int, int]]) -> None:
    """Against plain counts: whoever is said to have the most has more than half of what anybody has."""
    shares: Shares[int] = Shares()
    counts: Counter[int] = Counter()
    for client, more in steps:
        if counts[client] + more < 0:
            with pytest.raises(ValueError, match="cannot give"):
                shares.add(client, more)
            continue
        shares.add(client, more)
        counts[client] += more
        assert shares.total == counts.total()
        assert shares[client] == counts[client]
        assert len(shares) == sum(count > 0 for count in counts.values())
        largest = shares.largest()
        assert (largest is None) == (not counts.total())
        if largest is not None:
            assert 2 * counts[largest] > max(counts.values())


def test_one_client_is_one_site() -> None:
    """Addresses of one /24, and of one /56, are one client's."""
    assert client_prefix(bytes((192, 0, 2, 7))) == bytes((192, 0, 2))
    assert len(client_prefix(bytes(16))) == 7

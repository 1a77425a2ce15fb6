"""How what people give as options is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.options import resolver
from tests.core.strategies import quick


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.53", ("192.0.2.53", 53)),
        ("192.0.2.53:5353", ("192.0.2.53", 5353)),
        ("2001:db8::53", ("2001:db8::53", 53)),
        ("[2001:db8::53]:5353", ("2001:db8::53", 5353)),
        ("[2001:db8::53]", ("2001:db8::53", 53)),
    ],
)
def test_addresses_of_resolvers(text: str, address: tuple[str, int]) -> None:
    """IPv4 and IPv6 addresses, with a port or without."""
    assert resolver(text) == address


@quick(100)
@given(
    st.text(max_size=30)
    | st.sampled_from(["resolver.test", "192.0.2.53:x", "192.0.2.53:99999", "", "::1]:5"])
)
def test_what_is_no_address_is_told(text: str) -> None:
    """Whatever is written, it is an address and a port, or an error that repeats it."""
    try:
        found = resolver(text)
    except ValueError as error:
        message = str(error)
        assert f"`{text}` is not the address" in message
    else:
        assert found is None if not text else found is not None and 0 < found[1] < 65536

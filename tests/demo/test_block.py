"""A demo world takes a block of addresses of which nobody has any."""

from __future__ import annotations

import socket

import pytest

from gtm.demo.block import PORT, REFUSAL_HOST, SWITCH_HOST, address, reserve_block


@pytest.mark.parametrize("host", [1, 7, REFUSAL_HOST, SWITCH_HOST, 11, 42, 72])
def test_a_block_of_which_an_address_is_taken_is_left_alone(host: int) -> None:
    """A balancer's, the refusal page's, the switch's, or a model server's, which may outlive a world that was killed."""
    first, switch = reserve_block()
    with switch, socket.socket() as taken:
        if host != SWITCH_HOST:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((address(first, host), PORT))
            taken.listen()
            switch.close()  # not before: another world could take the block
        other, theirs = reserve_block()
        theirs.close()
    assert other != first

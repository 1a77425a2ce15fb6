"""The reader of backends' answers, held to whatever bytes may come."""

from __future__ import annotations

import asyncio

from httptools import HttpParserError
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.asking import _Asking
from tests.core.strategies import quick

MOST = 100
_PARTS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 503 No\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"content-length: 5\r\n",
    b"content-length: 99999999999999999999\r\n",
    b"transfer-encoding: chunked\r\n",
    b"connection: upgrade\r\nupgrade: x\r\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"hello",
    b"x" * 60,
)


@quick(500)
@given(st.lists(st.sampled_from(_PARTS) | st.binary(max_size=8), max_size=12), st.booleans())
def test_whatever_comes_ends_in_an_answer_or_an_error(pieces: list[bytes], broken: bool) -> None:
    """Nothing else is raised, and no body is longer than is read."""

    async def feed() -> None:
        protocol = _Asking(asyncio.get_running_loop().create_future(), MOST)
        for piece in pieces:
            protocol.data_received(piece)
        protocol.connection_lost(ConnectionResetError() if broken else None)
        assert protocol.done.done()
        error = protocol.done.exception()
        if error is None:
            status, body = protocol.done.result()
            assert 200 <= status <= 999
            assert len(body) <= MOST
        else:
            assert isinstance(error, OSError | HttpParserError)
        protocol.close()

    asyncio.run(feed())

"""What a resolver says of DS records."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dns.message
import dns.query
import dns.rcode
import dns.rrset
import pytest

from gtm.control.dnssec.keys import ds_records

pytestmark = pytest.mark.anyio

Answer = Callable[[dns.message.Message], bytes]


@contextmanager
def resolver(answer: Answer) -> Iterator[tuple[str, int]]:
    """A resolver on loopback that answers one question over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                query, _ = dns.query.receive_tcp(connection)
                wire = answer(query)
                connection.sendall(len(wire).to_bytes(2, "big") + wire)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[:2]
        thread.join(10)


def with_ds(*texts: str, rcode: dns.rcode.Rcode = dns.rcode.NOERROR) -> Answer:
    """Answers with these DS records."""

    def answer(query: dns.message.Message) -> bytes:
        response = dns.message.make_response(query)
        response.set_rcode(rcode)
        if texts:
            response.answer.append(dns.rrset.from_text("demo.test.", 60, "IN", "DS", *texts))
        return response.to_wire()

    return answer


DIGEST = "ab" * 32


async def test_ds_records_are_read() -> None:
    """All DS records of the answer; none if there are none or no such name."""
    with resolver(with_ds(f"7 13 2 {DIGEST}", f"8 13 2 {DIGEST}")) as address:
        found = await ds_records("demo.test", address)
    assert found == {bytes((0, tag, 13, 2)) + bytes.fromhex(DIGEST) for tag in (7, 8)}
    for rcode in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        with resolver(with_ds(rcode=rcode)) as address:
            assert await ds_records("demo.test", address) == frozenset()


async def test_what_is_no_answer_says_nothing() -> None:
    """A refusal, garbage and silence are not taken for a parent without DS records."""
    for answer in (with_ds(rcode=dns.rcode.SERVFAIL), lambda _: b"garbage"):
        with resolver(answer) as address:
            assert await ds_records("demo.test", address) is None
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = unused.getsockname()[:2]
    assert await ds_records("demo.test", closed) is None

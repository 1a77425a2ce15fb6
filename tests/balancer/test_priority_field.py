"""What a client states of its priority is read, or refused with what is possible: it is never passed over."""

from __future__ import annotations

import json

import pytest

from gtm.balancer.wire.heads import priority_of
from gtm.balancer.wire.refusals import Refusal, refusal_response
from gtm.core.model.services import Priority
from tests.balancer.world import Backend, Message, answering, run, world

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("priority", Priority)
def test_each_priority_is_read_as_people_write_it(priority: Priority) -> None:
    """In any case, with hyphens or underscores, with spaces around."""
    said = priority.value.encode()
    for written in (said, said.upper(), said.replace(b"_", b"-"), b" " + said.title() + b"\t"):
        assert priority_of(written) is priority


@pytest.mark.parametrize(
    ("path", "instance"),
    [
        (b"//evil.test/x?y", "/evil.test/x"),
        (b"/a%zz|\xff", "/a%25zz%7C%FF"),
        (b"/" + b"a" * 3000, "/" + "a" * 255),
    ],
)
def test_the_instance_of_a_refusal_is_a_short_relative_reference(path: bytes, instance: str) -> None:
    """Whatever the path is, as at edges."""
    refusal = Refusal(400, "priority_unread", "it is none")
    answer = refusal_response(refusal, closes=True, path=path.partition(b"?")[0])
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["instance"] == instance


@pytest.mark.parametrize("said", [b"nope", b"", b"5", b"batch, real_time", b"real time", b"\xff" * 300])
def test_what_is_no_priority_is_refused_with_those_that_are(said: bytes) -> None:
    """The client is told what it wrote, shortened, and what it can write; the backend gets nothing of it."""

    async def main() -> None:
        async with world(await Backend(answering(OK)).start()) as w:
            ask = b"GET /a?b HTTP/1.1\r\nHost: a\r\ngtm-priority: %b\r\n\r\n"
            answer = await w.ask(ask % said)
            assert answer.status == 400
            problem = json.loads(answer.body)
            assert problem["code"] == "priority_unread"
            assert (problem["type"], problem["instance"]) == ("urn:gtm:problem:priority-unread", "/a")
            shown = said.decode("latin-1")[:64]
            possible = "real_time, near_real_time, batch"
            assert problem["detail"] == f"`gtm-priority` is `{shown}`; it can be {possible}"
            assert (await w.ask(ask % b"Near-Real-Time")).status == 200

    run(main)


@pytest.mark.parametrize("said", [b"u=1", b"u=3, i", b"nonsense"])
def test_the_priority_of_http_is_nothing_of_gtms(said: bytes) -> None:
    """RFC 9218's `Priority` goes on as it came: Cloudflare adds it (binwiederhier/ntfy issue 351: 500 `invalid priority`)."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(OK, seen=seen)).start()) as w:
            ask = b"GET / HTTP/1.1\r\nHost: a\r\nPriority: %b\r\ngtm-priority: batch\r\n\r\n" % said
            assert (await w.ask(ask)).status == 200
            (message,) = seen
            assert (message.get("priority"), message.get("gtm-priority")) == (said, None)

    run(main)

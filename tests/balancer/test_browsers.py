"""What pages of other origins can read of what a balancer answers itself: docs/balancer.md#browsers, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from gtm.core.model.cors import Cors
from gtm.core.model.policy import Policy
from gtm.core.model.services import Push
from tests.balancer.regions import HOST, Regions, regions
from tests.balancer.test_pushing import GDPR, policy
from tests.balancer.world import Message, Peer, run

APP = b"https://app.example.com"
LISTED = Cors((APP.decode(),), fields=("authorization",))


def _with(cors: Cors | None) -> Callable[[Mapping[str, int]], Policy]:
    def made(ports: Mapping[str, int]) -> Policy:
        found = policy(GDPR)(ports)
        services = tuple(replace(one, cors=cors, push=Push.NEVER) for one in found.services)
        return replace(found, services=services)

    return made


async def _preflight(w: Regions, country: str, origin: bytes, path: bytes = b"/v1/completions") -> Message:
    peer = await w.ask("iad", country)  # for its connection: what it asks is answered first
    await w.until(lambda: bool(w.all["iad"].held) or country == "DE", "asked")
    if country != "DE":
        w.all["iad"].let_go()
    await w.answer(peer)
    peer.send(
        b"OPTIONS %b HTTP/1.1\r\nhost: %b\r\norigin: %b\r\naccess-control-request-method: POST\r\n"
        b"access-control-request-headers: authorization\r\n\r\n" % (path, HOST, origin)
    )
    return await w.answer(peer)


def _readable(message: Message) -> bytes | None:
    return message.get("access-control-allow-origin")


@pytest.mark.parametrize(("country", "status"), [("DE", 421), ("US", 503)])
def test_refusals_can_be_read_by_the_pages_that_may(country: str, status: int) -> None:
    """By law, and for want of servers; after agentgateway/agentgateway#926, where a 429 was "a CORS error" to the page."""

    async def main() -> None:
        for cors, origin, readable in (
            (LISTED, APP, APP),
            (LISTED, b"https://evil.example", None),
            (Cors(("*",)), APP, b"*"),
            (None, APP, None),
        ):
            async with regions(_with(cors), {"iad": 1, "fra": 1}) as w:
                w.all["iad"].picker.configure([], w.all["iad"].picker.pool.settings)
                answer = await w.answer(await w.ask("iad", country, b"origin: " + origin))
                assert answer.status == status
                assert _readable(answer) == readable
                exposed = answer.get("access-control-expose-headers")
                assert (exposed is not None and b"retry-after" in exposed) == (readable is not None)
                without = await w.answer(await w.ask("iad", country))
                assert _readable(without) is None

    run(main)


def test_preflights_are_answered_where_the_service_says_what_pages_may() -> None:
    """Whatever the law says of who asks, and whether any server is there: they hold no data (tbphp/gpt-load#566: preflights that were refused)."""

    async def main() -> None:
        async with regions(_with(LISTED), {"iad": 1, "fra": 1}) as w:
            for country in ("US", "DE"):
                answer = await _preflight(w, country, APP)
                assert (answer.status, _readable(answer)) == (204, APP)
                assert answer.get("access-control-allow-methods") == b"POST"
                assert answer.get("access-control-allow-headers") == b"authorization"
            refused = await _preflight(w, "US", b"https://evil.example")
            assert (refused.status, _readable(refused)) == (403, None)
            assert b"origin_not_allowed" in refused.body
            assert all(one.start.startswith(b"POST") for one in w.all["iad"].arrived)

    run(main)


def test_without_cors_a_preflight_is_the_model_servers() -> None:
    """As any other request."""

    async def main() -> None:
        async with regions(_with(None), {"iad": 1, "fra": 1}) as w:
            here = w.all["iad"]
            here.answers = True
            peer: Peer = await w.ask("iad", "US")
            await w.answer(peer)
            peer.send(
                b"OPTIONS /v1/x HTTP/1.1\r\nhost: %b\r\nx-forwarded-for: 10.2.0.7\r\norigin: %b\r\n"
                b"access-control-request-method: POST\r\n\r\n" % (HOST, APP)
            )
            assert (await w.answer(peer)).status == 200
            last = here.arrived[-1]
            assert last.start.startswith(b"OPTIONS")
            assert (last.get("origin"), last.get("access-control-request-method")) == (APP, b"POST")

    run(main)

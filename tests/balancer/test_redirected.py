"""What docs/spill-back.md says of `push: redirect` and `push: never`, between balancers over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from gtm.core.model.policy import Policy
from gtm.core.model.services import Push
from gtm.handoff.jwt import parsed
from tests.balancer.regions import HOST, Regions, address_of, regions
from tests.balancer.test_pushing import GDPR, policy
from tests.balancer.world import Message, Peer, run
from tests.patience import PATIENCE


def _by(push: Push) -> Callable[[Mapping[str, int]], Policy]:
    """The policy of pushes, with another setting."""

    def made(ports: Mapping[str, int]) -> Policy:
        found = policy(GDPR)(ports)
        return replace(found, services=tuple(replace(one, push=push) for one in found.services))

    return made


async def _sent_on(w: Regions, body: bytes = b"") -> Message:
    """What an American gets at Ashburn, which is full."""
    return await w.answer(await w.ask("iad", "US", body=body))


def test_a_client_is_sent_where_there_is_room() -> None:
    """307 to the peer's endpoint, its path and a handoff of one hop for one request; nothing of it waits here or counts as refused."""

    async def main() -> None:
        async with regions(_by(Push.REDIRECT), {"fra": 2, "iad": 1}) as w:
            await w.fill("iad")
            iad = w.all["iad"]
            answer = await _sent_on(w, b"hello")
            assert (answer.status, answer.get("x-gtm-region"), answer.get("cache-control")) == (
                307,
                b"fra",
                b"no-store",
            )
            link = urlsplit((answer.get("location") or b"").decode())
            assert (link.netloc, link.path) == (f"127.0.0.1:{w.all['fra'].port}", "/v1/x")
            claims = parsed(link.query.removeprefix("gtm_handoff=")).claims
            assert (claims.hop, claims.once, claims.pushed, claims.region) == (1, True, None, "fra")
            assert claims.client == "10.2.0.0/24"
            assert iad.pusher.counts == {("fra", "redirected"): 1}
            assert not iad.pusher.in_flight.total()
            assert not iad.admission.admission.waiting
            assert not iad.proxy.stats.refusals

    run(main)


def test_what_of_a_body_has_not_come_ends_with_the_connection() -> None:
    """Three megabytes are promised, and half of them sent: the answer comes whole, and then the end."""

    async def main() -> None:
        async with regions(_by(Push.REDIRECT), {"fra": 2, "iad": 1}) as w:
            await w.fill("iad")
            reader, writer = await asyncio.open_connection("::1", w.all["iad"].port, limit=2**21)
            peer = Peer(reader, writer)
            w.clients.append(peer)
            peer.send(
                b"POST /v1/x HTTP/1.1\r\nhost: %b\r\nx-forwarded-for: %b\r\ncontent-length: 3000000\r\n\r\n%b"
                % (HOST, address_of("US").encode(), b"x" * 1_500_000)
            )
            answer = await w.answer(peer)
            assert (answer.status, answer.get("connection")) == (307, b"close")
            async with asyncio.timeout(PATIENCE):
                assert await reader.read() == b""

    run(main)


def test_one_that_was_sent_on_goes_no_further() -> None:
    """The peer has filled up meanwhile: it waits there, and is served there."""

    async def main() -> None:
        async with regions(_by(Push.REDIRECT), {"fra": 2, "iad": 1}) as w:
            await w.fill("iad")
            answer = await _sent_on(w)
            link = urlsplit((answer.get("location") or b"").decode())
            await w.fill("fra")
            w.all["iad"].let_go()
            w.tell()
            token = link.query.removeprefix("gtm_handoff=").encode()
            asked = await w.ask("fra", "US", b"gtm-handoff: " + token)
            fra = w.all["fra"]
            await w.until(lambda: fra.admission.admission.waiting == 1, "it waits")
            assert fra.pusher.counts == {("", "one_hop"): 1}
            fra.let_go()
            await w.until(lambda: len(fra.arrived) == 3, "its turn")
            while fra.held:
                fra.let_go()
            assert (await w.answer(asked)).body == b"fra"

    run(main)


def test_never_means_never() -> None:
    """With room elsewhere it waits here, and no peer is asked for."""

    async def main() -> None:
        async with regions(_by(Push.NEVER), {"fra": 2, "iad": 1}) as w:
            await w.fill("iad")
            asked = await w.ask("iad", "US")
            iad = w.all["iad"]
            await w.until(lambda: iad.admission.admission.waiting == 1, "it waits")
            assert not iad.pusher.counts
            iad.let_go()
            await w.until(lambda: len(iad.held) == 1, "its turn")
            iad.let_go()
            assert (await w.answer(asked)).body == b"iad"

    run(main)


def test_openai_s_client_follows() -> None:
    """The real client: a chat completion with its body, from Ashburn to Frankfurt; it never learns of it."""
    import openai  # which takes half a second of each process that collects tests

    said = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "from fra"}}
        ],
    }

    async def main() -> None:
        async with regions(_by(Push.REDIRECT), {"fra": 2, "iad": 1}) as w:
            await w.fill("iad")
            fra = w.all["fra"]
            fra.answers, fra.says = True, json.dumps(said).encode()
            headers = {"Host": HOST.decode(), "X-Forwarded-For": address_of("US")}
            async with openai.AsyncOpenAI(
                base_url=f"http://[::1]:{w.all['iad'].port}/v1",
                api_key="sk-x",
                default_headers=headers,
                max_retries=0,
            ) as client:
                found = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hello"}]
                )
            assert found.choices[0].message.content == "from fra"
            (arrived,) = fra.arrived
            assert json.loads(arrived.body)["messages"] == [{"role": "user", "content": "hello"}]
            assert b"gtm_handoff" not in arrived.start
            assert w.all["iad"].pusher.counts == {("fra", "redirected"): 1}

    run(main)

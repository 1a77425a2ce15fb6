"""What docs/spill-back.md and docs/handoff.md say of pushes, between balancers over real sockets.

The model (`Law`) is sets of names, told from the policy's words: who may be served where. In every world no model server of a region
outside a client's fence sees anything of it, what was pushed is pushed no more, and in the end nothing is in flight.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gtm.balancer.wire.endpoints import Paths
from gtm.core.balance.admission import settings as core
from gtm.core.balance.work import AskedWork
from gtm.core.handoff.claims import Claims, fence_hash
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.model.policy import Policy, ResidencyRule, SpilloverRule
from gtm.core.model.regions import Capacity, Endpoint
from gtm.core.model.services import NameServer, Zone
from gtm.core.model.state import State
from gtm.feed.wire import HandoffKeysMessage, StateMessage
from gtm.handoff.jwt import HandoffSigner, made
from tests import worlds
from tests.balancer.regions import COUNTRIES, HOST, NO_RESERVES, Regions, regions
from tests.balancer.world import Peer, run
from tests.effort import examples

PLACES = ("fra", "dub", "iad")
LAW = {
    "DE": {"fra", "dub"},
    "IE": {"fra", "dub"},
    "US": {"fra", "dub", "iad"},
    "BR": {"fra", "iad"},
}
"""The model: where each country's requests may be served."""
GDPR = worlds.rule("gdpr", "EEA", client_jurisdictions="EEA", legal_basis="Art. 44 GDPR")
BRAZIL = worlds.rule("lgpd", "fra iad", client_countries="BR", legal_basis="Art. 33 LGPD")
JAPAN = worlds.rule("appi", "JP", client_countries="JP", acknowledge_empty_fence=True)
"""That is where the balancers' own addresses are: who judges a push by them serves nothing."""


def policy(
    *rules: ResidencyRule, spillover: tuple[SpilloverRule, ...] = ()
) -> Callable[[Mapping[str, int]], Policy]:
    """Three regions under these rules."""

    def written(ports: Mapping[str, int]) -> Policy:
        names = [name for name in PLACES if name in ports]
        ends = (Endpoint(f"http://127.0.0.1:{ports[name]}", ("192.0.2.7",)) for name in names)
        zone = Zone("test", "ns1.test", "hostmaster.test", (NameServer("ns1.test", ("192.0.2.53",)),))
        service = worlds.service("chat", " ".join(names), hostnames=(HOST.decode(),))
        return worlds.policy(*map(worlds.region, names, ends), zone, service, *rules, *spillover)

    return written


LAWS = policy(GDPR, BRAZIL, JAPAN)


def test_what_finds_no_slot_is_pushed_and_the_client_sees_where() -> None:
    """An American at a full Ashburn is served in Europe; by the law of the American, not of the balancer that asks."""

    async def main() -> None:
        async with regions(LAWS, {"fra": 1, "iad": 1}) as w:
            await w.fill("iad")
            asked = await w.ask("iad", "US", b"gtm-priority: real_time", body=b"hello")
            await w.until(lambda: len(w.all["fra"].held) == 1, "it is pushed")
            (request,) = w.all["fra"].arrived
            assert request.body == b"hello"
            assert request.get("host") == HOST
            assert request.get("gtm-handoff") is None
            assert request.get("gtm-push") is None
            w.all["fra"].let_go()
            answer = await w.answer(asked)
            assert (answer.status, answer.body) == (200, b"fra")
            assert answer.get("x-gtm-region") == b"fra"
            assert answer.get("gtm-push") is None
            iad = w.all["iad"]
            assert dict(iad.pusher.counts) == {("fra", "moved"): 1}
            assert iad.proxy.stats.served()[0] == 0, "no backend of Ashburn's had it"
            assert (w.all["fra"].proxy.stats.came, iad.proxy.stats.came) == ({"chat": 1}, {}), (
                "who served it says that it came"
            )
            assert not iad.proxy.stats.failures
            assert len(iad.arrived) == 1

    run(main)


def test_a_european_waits_although_america_is_free() -> None:
    """Frankfurt is full, Ashburn is not: a German's request waits, a Brazilian's goes."""

    async def main() -> None:
        async with regions(LAWS, {"fra": 1, "iad": 2}) as w:
            await w.fill("fra")
            german = await w.ask("fra", "DE")
            await w.until(lambda: w.all["fra"].admission.admission.waiting == 1, "it waits")
            w.tell()
            await w.ask("fra", "BR")
            await w.until(lambda: len(w.all["iad"].held) == 1, "the Brazilian's is pushed")
            assert [one.get("x-client") for one in w.all["iad"].arrived] == [b"BR"]
            w.all["fra"].let_go()
            await w.until(lambda: len(w.all["fra"].held) == 1, "the German's turn")
            w.all["fra"].let_go()
            assert (await w.answer(german)).body == b"fra"

    run(main)


def test_no_more_slots_are_free_than_the_policy_says() -> None:
    """Frankfurt says that two are, and the policy that it has none: an American's request waits at Ashburn."""

    async def main() -> None:
        def law(ports: Mapping[str, int]) -> Policy:
            return worlds.changed(LAWS(ports), "regions", "fra", capacity=Capacity(outstanding=0))

        async with regions(law, {"fra": 2, "iad": 1}) as w:
            iad = w.all["iad"]
            await w.fill("iad")
            waiting = await w.ask("iad", "US")
            await w.until(lambda: iad.admission.admission.waiting == 1, "it waits")
            assert dict(iad.pusher.counts) == {("", "no_room"): 1}
            iad.let_go()
            await w.until(lambda: len(iad.held) == 1, "its turn")
            iad.let_go()
            assert (await w.answer(waiting)).body == b"iad"

    run(main)


def test_one_hop() -> None:
    """A pushed request that finds its peer full waits there."""

    async def main() -> None:
        async with regions(LAWS, {"fra": 1, "dub": 4, "iad": 1}) as w:
            await w.fill("iad")
            fra = w.all["fra"]
            w.tell("dub")
            # Frankfurt fills up before anybody hears of it, and is told that Dublin is free.
            await w.ask("fra", "DE")
            await w.until(lambda: len(fra.held) == 1)
            await w.ask("iad", "US")
            await w.until(lambda: fra.admission.admission.waiting == 1, "it waits in Frankfurt")
            assert fra.pusher.counts["", "one_hop"] == 1
            assert not w.all["dub"].arrived

    run(main)


@pytest.mark.parametrize(
    ("why", "code"), [("key", "no_key"), ("silent", "no_room"), ("quick", "nothing_gained")]
)
def test_what_keeps_a_request_here(why: str, code: str) -> None:
    """Nobody could verify it; nothing is known of the peer; it would start here before it could there."""

    async def main() -> None:
        service_s = (lambda: 0.001) if why == "quick" else None
        async with regions(LAWS, {"fra": 3, "iad": 1}, service_s=service_s) as w:
            await w.fill("iad")
            iad = w.all["iad"]
            if why == "key":
                w.publish("iad")
            elif why == "silent":
                w.tell("fra")
            await w.ask("iad", "US")
            await w.until(lambda: iad.admission.admission.waiting == 1)
            assert dict(iad.pusher.counts) == {("", code): 1}
            assert not w.all["fra"].arrived

    run(main)


def _asked() -> AskedWork:
    return AskedWork("", 0, None)


@pytest.mark.parametrize("agreed", [True, False])
def test_what_an_edge_allowed_otherwise_stays(agreed: bool) -> None:
    """The edge's fence is not known to be ours: pushed nowhere, and no quota is asked."""

    async def main() -> None:
        rule = SpilloverRule("out", "iad", ("fra",), max_requests_per_second=1.0)
        async with regions(policy(GDPR, spillover=(rule,)), {"fra": 3, "iad": 1}) as w:
            await w.fill("iad")
            edge, iad = made(), w.all["iad"]
            keys = (*iad.current.handoff_keys.keys, PublicKey("edge", key_text(edge.public)))
            iad.current.apply(HandoffKeysMessage(PublicKeys(keys, 9)))
            now = int(time.time())
            fence = fence_hash(LAW["US"] - {"dub"} if agreed else {"iad"})
            claims = Claims(
                "edge", "iad", "chat", now - 1, now + 60, "n", fence, 1, client="10.2.0.0/24", once=True
            )
            await w.ask("iad", "US", b"gtm-handoff: " + HandoffSigner(edge).sign(claims))
            await w.until(lambda: iad.pusher.counts.total() == 1)
            assert dict(iad.pusher.counts) == ({("fra", "moved"): 1} if agreed else {("", "no_room"): 1})
            assert bool(iad.bank.spent) is agreed
            assert set(iad.proxy.gate.flaws) == (set() if agreed else {"handoff_fence_differs"})  # type: ignore[attr-defined]

    run(main)


def test_a_queue_that_is_full_pushes_whatever_the_wait() -> None:
    """Refused for want of a place: any peer is sooner."""

    async def main() -> None:
        short = core.AdmissionSettings(reserves=NO_RESERVES, queue_length=0)
        async with regions(LAWS, {"fra": 3, "iad": 1}, settings=short) as w:
            await w.fill("iad")
            asked = await w.ask("iad", "US")
            await w.until(lambda: len(w.all["fra"].held) == 1)
            w.all["fra"].let_go()
            assert (await w.answer(asked)).body == b"fra"
            w.tell("fra")
            again = await w.ask("iad", "US")
            assert (await w.answer(again)).status == 503, "and where none has room it is refused as ever"

    run(main)


def test_a_tenant_over_its_share_is_not_pushed() -> None:
    """429 is no want of room."""

    async def main() -> None:
        one = core.AdmissionSettings(reserves=NO_RESERVES, without_tenant=core.TenantLimits(concurrency=1))
        async with regions(LAWS, {"fra": 3, "iad": 1}, settings=one) as w:
            await w.fill("iad")
            again = await w.ask("iad", "US")
            assert (await w.answer(again)).status == 429
            assert not w.all["fra"].arrived
            assert not w.all["iad"].pusher.counts

    run(main)


@pytest.mark.parametrize("comes_up", [True, False])
def test_a_push_goes_by_the_health_of_now(comes_up: bool) -> None:
    """A region that came up, or went down, after a request was judged and before its body had come."""

    async def main() -> None:
        async with regions(LAWS, {"fra": 3, "iad": 1}) as w:
            await w.fill("iad")
            iad = w.all["iad"]
            assert iad.current.router is not None
            every = iad.current.router.view.snapshot.regions
            before, after = worlds.health(every, ["fra"]), worlds.health(every)
            if not comes_up:
                before, after = after, before
            iad.current.apply(StateMessage(State(2, health=before)))
            judged = iad.gate.judged
            asked = await w.ask("iad", "US", b"content-type: application/json", body=b"{", more=1)
            await w.until(lambda: iad.gate.judged > judged, "it is judged")
            iad.current.apply(StateMessage(State(3, health=after)))
            asked.send(b"}")
            if comes_up:
                await w.until(lambda: len(w.all["fra"].held) == 1, "it is pushed to where there is room now")
            else:
                await w.until(lambda: iad.admission.admission.waiting == 1, "it waits")
                assert not w.all["fra"].arrived

    run(main)


@pytest.mark.parametrize("body", [0, 200_000])
@pytest.mark.parametrize("why", ["unverified", "law", "gone"])
def test_what_a_peer_does_not_take_waits_here(why: str, body: int) -> None:
    """The peer has not heard of the key; has a newer law, by which it may not; is gone. Its client sees nothing of that."""

    async def main() -> None:
        no_americans = worlds.rule("new", "iad", client_countries="US")
        newer = {"fra": policy(GDPR, no_americans)} if why == "law" else {}
        async with regions(LAWS, {"fra": 3, "iad": 1}, older=newer) as w:
            await w.fill("iad")
            iad = w.all["iad"]
            if why == "unverified":
                keys = iad.current.handoff_keys
                w.publish("iad")
                iad.current.handoff_keys = keys
            elif why == "gone":
                for one in w.all["fra"].listening:
                    one.close()
            asked = await w.ask("iad", "US", body=b"x" * body)
            await w.until(lambda: iad.pusher.counts["fra", "failed"] == 1, "the peer does not take it")
            assert iad.admission.admission.waiting == 1
            assert not w.all["fra"].arrived
            iad.let_go()
            await w.until(lambda: len(iad.held) == 1, "its turn")
            assert len(iad.arrived[-1].body) == body
            iad.let_go()
            answer = await w.answer(asked)
            assert (answer.status, answer.body, answer.get("x-gtm-region")) == (200, b"iad", b"iad")
            assert iad.pusher.in_flight["fra"] == 0

    run(main)


def test_what_comes_home_pays_its_tenants_rate_once() -> None:
    """Three requests a tenant may begin at once: one has, one was pushed and came home, so that a third is taken in, and a fourth is not."""

    async def main() -> None:
        may = core.TenantLimits(requests_per_second=0.001, burst=3)
        settings = core.AdmissionSettings(reserves=NO_RESERVES, without_tenant=may)
        async with regions(LAWS, {"fra": 3, "iad": 1}, settings=settings) as w:
            await w.fill("iad")
            iad = w.all["iad"]
            w.all["fra"].proxy.paths = Paths(["POST /v1/embeddings"])
            home = await w.ask("iad", "US")
            await w.until(lambda: iad.pusher.counts["fra", "failed"] == 1, "the peer does not take it")
            await w.until(lambda: iad.admission.admission.waiting == 1, "it waits")
            third = await w.ask("iad", "US")
            await w.until(lambda: iad.admission.admission.waiting == 2, "another waits")
            assert (await w.answer(await w.ask("iad", "US"))).status == 429
            iad.answers = True
            iad.let_go()
            assert [(await w.answer(one)).status for one in (home, third)] == [200, 200]

    run(main)


def test_what_a_peer_refuses_for_itself_keeps_nothing_else_here() -> None:
    """A path that the peer does not carry, a model that it has not, a tenant's limit: whoever asks for that would else close the way for all, for two seconds each."""

    async def main() -> None:
        async with regions(LAWS, {"fra": 3, "iad": 1}) as w:
            await w.fill("iad")
            iad, fra = w.all["iad"], w.all["fra"]
            fra.proxy.paths = Paths(["POST /v1/embeddings"])
            await w.ask("iad", "US")
            await w.until(lambda: iad.pusher.counts["fra", "failed"] == 1, "the peer does not take it")
            await w.until(lambda: iad.admission.admission.waiting == 1, "it waits")
            assert not fra.arrived
            fra.proxy.paths = None
            await w.ask("iad", "US")
            await w.until(lambda: len(fra.held) == 1, "the next one is pushed")

    run(main)


def test_what_came_back_is_pushed_no_more() -> None:
    """Neither peer would take it: the second is not asked."""

    async def main() -> None:
        at_home = worlds.rule("new", "iad", client_countries="US")
        newer = dict.fromkeys(("fra", "dub"), policy(GDPR, at_home))
        async with regions(LAWS, {"fra": 3, "dub": 3, "iad": 1}, older=newer) as w:
            await w.fill("iad")
            iad = w.all["iad"]
            await w.ask("iad", "US")
            await w.until(
                lambda: iad.admission.admission.waiting == 1 and bool(iad.pusher.counts), "it waits"
            )
            found = Counter(why for _, why in iad.pusher.counts.elements())
            assert found == {"moved": 1, "failed": 1}

    run(main)


def test_a_push_that_cannot_be_believed_is_nobody_s() -> None:
    """Whoever says that a request was pushed, without a proof, is refused: a carrier's place says nothing of the client."""

    async def main() -> None:
        async with regions(policy(GDPR), {"fra": 1}) as w:
            asked = await w.ask("fra", "US", b"gtm-push: 1")
            answer = await w.answer(asked)
            assert answer.status == 421
            assert b"push_not_believed" in answer.body
            assert not w.all["fra"].arrived

    run(main)


def test_quotas_are_paid_or_nothing_is_pushed() -> None:
    """A rule leads from Ashburn to Frankfurt, under a quota with tokens for two."""

    async def main() -> None:
        rule = SpilloverRule("out", "iad", ("fra",), max_requests_per_second=1.0)
        async with regions(policy(GDPR, spillover=(rule,)), {"fra": 9, "iad": 1}, tokens=2) as w:
            await w.fill("iad")
            for _ in range(5):
                await w.ask("iad", "US")
            iad = w.all["iad"]
            await w.until(lambda: iad.pusher.counts.total() == 5)
            assert iad.pusher.counts["fra", "moved"] == 2
            assert iad.pusher.counts["", "no_quota"] == 3
            assert list(iad.bank.spent.values()) == [2]

    run(main)


def test_a_client_that_goes_away_is_gone_everywhere() -> None:
    """Its end reaches the peer's model server."""

    async def main() -> None:
        async with regions(LAWS, {"fra": 1, "iad": 1}) as w:
            await w.fill("iad")
            asked = await w.ask("iad", "US")
            fra = w.all["fra"]
            await w.until(lambda: len(fra.held) == 1)
            asked.abort()
            await w.until(fra.held[0].reader.at_eof, "the model server sees it")
            fra.held.clear()
            await w.until(lambda: w.all["iad"].pusher.in_flight["fra"] == 0)
            assert not fra.admission.admission.running

    run(main)


_step = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(PLACES), st.sampled_from(COUNTRIES)),
    st.tuples(st.just("ask"), st.sampled_from(PLACES), st.sampled_from(COUNTRIES)),
    st.tuples(st.just("let_go"), st.sampled_from(PLACES)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("tell"), st.sampled_from([*PLACES, ""])),
    st.tuples(st.just("publish"), st.sampled_from([*PLACES, ""])),
    st.tuples(st.just("breathe")),
)


@pytest.mark.endurance
def test_in_every_world() -> None:
    """Never outside the fence, one hop, no more than the quotas have; and nothing is left."""
    met: Counter[str] = Counter()

    @settings(max_examples=examples(200, 25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(_step, min_size=5, max_size=40),
        st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)),
        st.sets(st.sampled_from(PLACES)),
        st.integers(0, 3),
    )
    def every(steps: list[tuple[Any, ...]], slots: tuple[int, ...], full: set[str], tokens: int) -> None:
        run(lambda: _one(steps, dict(zip(PLACES, slots, strict=True)), full, tokens, met))

    every()
    assert {"moved", "no_room"} <= met.keys(), f"the worlds are too tame: {met}"


async def _one(
    steps: list[tuple[Any, ...]], slots: dict[str, int], full: set[str], tokens: int, met: Counter[str]
) -> None:
    rule = SpilloverRule("out", "iad", ("fra", "dub"), max_requests_per_second=1.0)
    law = policy(GDPR, BRAZIL, JAPAN, spillover=(rule,))
    async with regions(law, slots, tokens=tokens, service_s=lambda: 9.0) as w:  # whatever is gained
        for region in full:
            await w.fill(region)
        asked = await _played(w, steps)
        await asyncio.sleep(0.02)
        _holds(w, tokens)
        await w.nothing_left()
        for (region, country), client in asked:
            if not client.writer.transport.is_closing():
                await _answered(w, client, region, country)
        _holds(w, tokens)
        for here in w.all.values():
            met.update(why for _, why in here.pusher.counts.elements())


async def _played(w: Regions, steps: list[tuple[Any, ...]]) -> list[tuple[tuple[str, str], Peer]]:
    """Do what a world has happen; who asked where, from where."""
    asked: list[tuple[tuple[str, str], Peer]] = []
    for what, *more in steps:
        if what == "ask":
            asked.append(((more[0], more[1]), await w.ask(*more)))
        elif what == "let_go":
            w.all[more[0]].let_go()
        elif what == "cancel":
            if more[0] < len(asked):
                asked[more[0]][1].abort()
        elif what == "breathe":
            await asyncio.sleep(0.005)
        else:
            getattr(w, what)(*more)
    return asked


async def _answered(w: Regions, client: Peer, region: str, country: str) -> None:
    answer = await w.answer(client)
    legal = region in LAW[country]
    assert (answer.status == 200) is legal, (region, country, answer)
    assert not legal or answer.body.decode() in LAW[country]


def _holds(w: Regions, tokens: int) -> None:
    for here in w.all.values():
        for request in here.arrived:
            country = (request.get("x-client") or b"").decode()
            assert here.name in LAW[country], f"{country} in {here.name}"
            assert request.get("gtm-handoff") is None
            hops = (request.get("x-forwarded-for") or b"").split(b", ")
            assert len(hops) <= 3, f"client, its proxy, one balancer: {hops}"
        assert all(spent <= tokens for spent in here.bank.spent.values())


def test_the_model_is_the_policy_s() -> None:
    """The law of the worlds, as the policy has it without pushes: each region serves its own."""

    async def main() -> None:
        async with regions(LAWS, dict.fromkeys(PLACES, 20)) as w:
            for here in w.all.values():
                here.answers = True
            for country, allowed in LAW.items():
                for region in PLACES:
                    answer = await w.answer(await w.ask(region, country))
                    assert (answer.status == 200) is (region in allowed), (country, region, answer)

    run(main)


def test_a_slot_that_is_held_for_long_is_expected_to_be_held_for_longer() -> None:
    """Short requests have ended; one that holds the only slot has not, and says more of the wait than they."""

    async def main() -> None:
        async with regions(LAWS, {"fra": 3, "iad": 1}) as w:
            iad = w.all["iad"]
            for _ in range(200):
                iad.picker.costs.learn(_asked(), 0.001)
            assert iad.picker.service_s() < 0.01
            await w.fill("iad")
            await w.until(lambda: iad.picker.service_s() > 0.3, "its age counts")
            w.tell()
            await w.ask("iad", "US")
            await w.until(lambda: iad.pusher.counts["fra", "moved"] == 1)
            iad.let_go()
            await w.until(lambda: iad.picker.service_s() < 0.01, "nothing is in flight")

    run(main)

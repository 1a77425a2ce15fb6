"""When a request may be asked of another server: the table of docs/balancer.md ("When something fails"), whole."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import cast

import pytest

from gtm.balancer.plane.exchange import Exchange, Reached, may_ask_another, why_not_another
from gtm.balancer.wire.endpoints import named_in, target_of
from tests.balancer.world import Backend, Peer, answering, run, world

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _expected(
    *,
    method: bytes,
    target: bytes,
    key: bool,
    reached: Reached,
    heard: bool,
    repeated: bool,
    kept: bool,
    home: bool,
    repeats: bool,
) -> bool:
    cannot_have_begun = reached in (Reached.UNHEARD, Reached.UNSENT, Reached.DECLINED)
    only_computes = repeats and target == b"/v1/chat/completions"
    may_be_done_twice = (method != b"POST" or key or only_computes) and not heard and not repeated
    of_one_server = target.startswith(b"/v1/responses/") and not home
    return kept and (cannot_have_begun or may_be_done_twice) and not of_one_server


def test_the_table() -> None:
    """Each row and condition; the budget is asked last, and only where another would be asked."""
    methods = (b"GET", b"POST", b"PUT", b"DELETE")
    targets = (
        b"/v1/chat/completions",
        b"/v1/responses",
        b"/v1/responses/resp_1",
        b"/v1/responses/resp_1/cancel?x=1",
    )
    yes_no = (False, True)
    for method, target, key, reached, heard, repeated, kept, home, repeats, judged in product(
        methods, targets, yes_no, Reached, yes_no, yes_no, yes_no, yes_no, yes_no, yes_no
    ):
        asked: list[tuple[int, bool]] = []

        def may_retry(tries: int, *, free: bool, asked: list[tuple[int, bool]] = asked) -> bool:
            asked.append((tries, free))
            return True

        seen = {b"idempotency-key": b"1"} if key else {}
        exchange = SimpleNamespace(
            head=SimpleNamespace(method=method, target=target, seen=seen),
            target=target_of(method, target),
            makes_state=target_of(method, target).makes_state,
            answering=False,
            keeps_body=kept,
            heard=heard,
            repeated=repeated,
            goes_on_with=named_in(target),
            tried=("http://one",),
            proxy=SimpleNamespace(may_retry=may_retry, repeats=repeats, replay=65536),
        )
        expected = _expected(
            method=method,
            target=target,
            key=key,
            reached=reached,
            heard=heard,
            repeated=repeated,
            kept=kept,
            home=home,
            repeats=repeats,
        )
        assert bool(why_not_another(cast("Exchange", exchange), reached, home=home)) != expected
        found = may_ask_another(cast("Exchange", exchange), reached, home=home, judged=judged)
        assert found == expected, (method, target, key, reached, heard, repeated, kept, home, repeats)
        assert exchange.repeated == (repeated or (found and reached is Reached.BEGUN))
        free = judged or reached is Reached.UNHEARD  # of the budget
        assert asked == ([(1, free)] if expected and not home else [])
        exchange.answering = True
        assert not may_ask_another(cast("Exchange", exchange), reached, home=home)


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/responses/resp_1",
        b"/v1/files/file-1/content",
        b"/v1/batches/b",
        b"/v1/conversations/c/items",
        b"/v1/chat/completions/c",
    ],
)
def test_what_one_server_has_is_asked_of_no_other(target: bytes) -> None:
    """It would say 404, which clients take for the truth. Lists and what is made anew are no state."""

    async def ends(peer: Peer) -> None:
        await peer.request()
        peer.close()

    async def main() -> None:
        other = Backend(answering(_OK))
        async with world(await Backend(ends).start(), await other.start()) as w:
            assert (await w.ask(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)).status == 502
            assert not other.connections
            shorter = b"/".join(target.split(b"/")[:3])
            assert (await w.ask(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % shorter)).status == 200

    run(main)

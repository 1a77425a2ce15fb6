"""Short answers to look-ups, prepared for all clients that are ranked alike.

A client that is new to a worker asks what thousands before it have asked: they stand elsewhere, but the same regions are
near, the same rules bind, and the reasons are the same words. Such an answer names its client in one place:

    {"service":"chat", … "reasons":["eu-west: chosen, …"],"client":{"ip":"81.2.69.142", …},"rules":[ … ],"epoch":1}
    └──────────────────── before ────────────────────────┘└───────── the client's own ─────┘└─────── after ───────┘

Everything before and after is made from these, and they are the key that it is kept under (`gtm.core.memory`):

  - the Ranking: one for each service and kind of location (what estimates and fence depend on), tenant, data class,
    model and priority (`gtm.core.decision.router.Ranker.ranking`); with it come rules, estimates, order and model;
  - the Option that was picked, which is one View's: region or refusal, and the reason;
  - the endpoint, where the region has several, of which the client's key picks one;
  - where it was asked, which a refusal names.

So only some 100 bytes are written for each client. Rankings and Options are told apart by identity: those of another
View or Basis are others, and what is prepared goes with the Router that made it.

Laws:
  1. A response put together here is byte for byte that of `ResolvedRequest.rendered` (tests/http/test_prepared.py), and a
     handoff, where one is due, after that.
  2. Nothing about fences is shared that a Ranking does not share: its key has every fact that a fence looks at.
  3. Memory is bounded in bytes (`ROOM`), whatever the policy says in its reasons.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gtm.core.decision.decide import Routing
from gtm.core.decision.explain import client_document
from gtm.core.decision.options import Option
from gtm.core.decision.ranking import Ranking
from gtm.core.decision.router import Router
from gtm.core.memory import Memory
from gtm.core.model.regions import Endpoint
from gtm.http.answers.resolved import ResolvedRequest
from gtm.http.problems import Head, Response, head_of, json_headers

ROOM = 16 * 1024 * 1024
"""Bytes of one generation of prepared answers."""
_OWN = 600
"""Bytes that an entry takes besides its text, about."""
_GAP = b"\x00"
"""Stands for the client while an answer is prepared: no JSON text has this byte (RFC 8259 §7)."""

_encode = msgspec.json.Encoder().encode


class _Parts(NamedTuple):
    """An answer but for its client. `counted_as` is the key that it is counted under."""

    head: Head
    before: bytes
    after: bytes
    counted_as: str


_Key = tuple[Ranking, Option, Endpoint | None, str]


class Prepared:
    """What is prepared for one Router.

    Args:
        router: what decides; None: there is none, and nothing is asked.
        room: bytes of a generation.
    """

    def __init__(self, router: Router | None, room: int = ROOM) -> None:
        self._router = router
        regions = () if router is None else router.view.snapshot.regions
        several = [len(region.endpoints) > 1 for region in regions]
        self._several = (*several, False)
        """By a region's number, whether it has endpoints to pick from; -1, the number of a refusal, is the last."""
        self._parts: Memory[_Key, _Parts] = Memory(self._prepare, room, _size)

    def response(self, resolved: ResolvedRequest, option: Option) -> Response:
        """The response to a look-up that is not to be explained in full, when it ends by an option."""
        routing = resolved.routing
        endpoint = routing.endpoint(option) if self._several[option.number] else None
        head, before, after, counted_as = self._parts[routing.ranking, option, endpoint, resolved.instance]
        client = None if resolved.client is None else resolved.client.text
        own = _encode(client_document(routing.request.location, client))
        if resolved.handoffs is not None:
            token = resolved.handoff(option, once=False)
            if token is not None:
                after = b'%b,"handoff":"%b"}' % (after[:-1], token)
        # As `Response(…)`, in half of the time.
        response: Response = tuple.__new__(Response, (head, before + own + after, counted_as))
        return response

    def _prepare(self, key: _Key) -> _Parts:
        ranking, option, endpoint, instance = key
        router = self._router
        assert router is not None  # noqa: S101 - nothing is resolved without one
        routing = Routing(router.view, ranking, router.choices[ranking.group], ranking.request)
        resolved = ResolvedRequest(router, routing, None, instance, False, None)
        endpoint = endpoint or routing.endpoint(option)  # the only one there is
        status, document, headers = resolved.ended(option, endpoint)
        before, _, after = _encode({**document, "client": msgspec.Raw(_GAP)}).partition(_GAP)
        head = head_of(status, json_headers(status, headers))
        return _Parts(head, before, after, resolved.counted_as(option, "lookup"))


def _size(_: _Key, parts: _Parts) -> int:
    return _OWN + len(parts.before) + len(parts.after)

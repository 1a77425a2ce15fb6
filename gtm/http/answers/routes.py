"""Answers to kinds of request, remembered for as long as a Router lives.

Law: what is remembered is the choice, never the pick. Each request is picked for anew, by its affinity or a fresh
draw; only what a pick would say word for word the same is kept as finished bytes.
"""

from __future__ import annotations

import os
import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from gtm.core.decision.carry import carries, without
from gtm.core.decision.choice import pick
from gtm.core.decision.decide import Routing
from gtm.core.decision.explain import answer, client_document
from gtm.core.decision.options import Afford, Option, endpoint_for
from gtm.core.decision.ranking import Ranking
from gtm.core.decision.router import Router
from gtm.core.decision.view import View
from gtm.core.handoff.claims import Issuer, handed, lifetime
from gtm.core.handoff.keys import OwnKey, PublicKeys, key_text
from gtm.core.handoff.verdict import no_higher
from gtm.core.memory import Memory
from gtm.core.model.cors import Cors
from gtm.core.model.names import host_name
from gtm.core.model.outcomes import Outcome, Reason, UnknownNameError
from gtm.core.model.references import some
from gtm.core.model.refusals import REFUSAL_FORMS, RefusalForm, form_of, with_error
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import UNKNOWN_LOCATION, ContradictionError, Location, Request, agreed
from gtm.core.model.services import Handoff, Service
from gtm.core.quota.earned import Earn, Worth
from gtm.feed.current import CurrentView
from gtm.geoip.client import ClientAddress
from gtm.handoff import carried, jwks
from gtm.handoff.jwt import HandoffSigner
from gtm.http.answers.corrections import Corrections, RouterCorrections
from gtm.http.problems import (
    Head,
    Headers,
    ProblemError,
    Response,
    head_of,
    json_headers,
    json_response,
    problem,
    response_of,
)
from gtm.http.requests.incoming import Incoming, Page
from gtm.http.requests.lookup import Lookup
from gtm.telemetry import decision_key

# --- An edge's part in handoffs: what it signs for clients that it sends to a region, and the keys that it publishes. ---
#
# Law: a service that does not ask for handoffs costs nothing by them. What is prepared of answers holds no handoff; it is put in
# where one is asked for, made for each answer.


_NONCE = 12
"""Random bytes of a nonce."""
REUSED = 5.0
"""Seconds for which a carried request's handoff goes with others of the same client to the same region: a signature takes as long as a request."""
_ON_THE_WAY = 1.0
"""Seconds that a carried request may take to its balancer before its handoff is over."""
SPREAD = 1.0
"""Seconds from when an edge hears that its key is published until balancers have heard of that key, too: all are told at the same time, and some are slow to take it in."""
_HEADERS: Headers = (
    (b"content-type", jwks.MEDIA_TYPE.encode()),
    (b"cache-control", b"public, max-age=%d" % jwks.KEPT),
)


class EdgeHandoffs:
    """Signs for one process of an edge.

    Args:
        current: has the time, and the public keys of all edges.
    """

    def __init__(self, current: CurrentView) -> None:
        self._current = current
        self._known: PublicKeys | None = None
        self._of_edges: frozenset[str] = frozenset()
        self._issuer = ""
        self._public = ""
        self._signer: HandoffSigner | None = None
        self._lacked = False
        """Whether keys were heard of since this process signs by its key, and that one was not among them: it is new when it comes."""
        self._spread, self._spread_at = "", 0.0
        """The key that was found published last, and when balancers have heard of that key, too, by this machine's boot clock."""
        self.credit: Worth = ()
        """What the request that was picked for last has earned and this process could not save: it goes on in its handoff."""
        self._own: tuple[str, ...] = ()

    def use(self, issuer: str, key: OwnKey, public: tuple[str, ...]) -> None:
        """Sign by a key, as an issuer, from now on; `public` are all keys of this edge that are to be published."""
        mine = key_text(key.public)
        if self._signer is not None and mine != self._public:
            # An edge signs by its next key long after that was published (`gtm.core.handoff.keys.AHEAD`).
            self._spread_at, self._spread, self._lacked = 0.0, mine, False
        self._issuer, self._own, self._signer, self._public = issuer, public, HandoffSigner(key), mine
        self._known = None
        self.hear()

    def signs(self, routing: Routing) -> bool:
        """Whether the service asks for it."""
        return routing.ranking.group.service.service.handoff is Handoff.SIGN

    def signed(self, routing: Routing, option: Option, *, once: bool, carried: bool = False) -> bytes | None:
        """The handoff of the request that was picked for last; None if there is nothing to hand over, or no key yet."""
        signer = self._signer
        if signer is None:
            return None
        nonce = urlsafe_b64encode(os.urandom(_NONCE)).decode()
        credit = () if carried else self.credit
        claims = handed(
            routing,
            option,
            self._issuer,
            self._current.window,
            nonce,
            once=once,
            credit=credit,
            carried=carried,
        )
        return None if claims is None else signer.sign(claims)

    @property
    def believed(self) -> bool:
        """Whether balancers can believe what is signed now: its key is published, as this edge heard `SPREAD` seconds ago, and kept on its disk."""
        return (
            self._signer is not None
            and self._public in self._keys_of_edges()
            and self._current.boot() >= self._spread_at
        )

    def hear(self) -> None:
        """Keys were published: whether this edge's is new among them shows now, and not when somebody asks."""
        self._keys_of_edges()

    def _keys_of_edges(self) -> frozenset[str]:
        keys = self._current.handoff_keys
        if keys is not self._known:
            found = frozenset(key.x for key in keys.keys if key.kind is Issuer.EDGE)
            if self._public and self._public not in found:
                self._lacked, self._spread = self._lacked or keys.version > 0, ""
            elif self._public != self._spread:
                new = self._lacked or self._current.window.now - keys.version / 1000 < SPREAD
                self._spread_at = self._current.boot() + SPREAD if new else 0.0
                self._spread = self._public
            # Another thread may ask meanwhile: what it goes by last is set last.
            self._of_edges = found
            self._known = keys
        return self._of_edges

    def of_carried(
        self, routing: Routing, option: Option, known: dict[str | None, tuple[bytes, float]]
    ) -> bytes | None:
        """The handoff of a request that is carried to a region; None: none can be made now.

        Args:
            routing: the request's way.
            option: how it ends, in a region.
            known: those that were made for requests alike, by region, and until when (POSIX seconds) they go with others.
        """
        token, until = known.get(option.region, (b"", 0.0))
        if token and self._current.now < until:
            return token
        window = self._current.window
        # A balancer compares with the latest that it may be, which is later than now: what ends by then would not be believed.
        last = lifetime(routing, window, carried=True)[1] - (window.latest - window.now) - _ON_THE_WAY
        if last <= window.now:
            return None
        found = self.signed(routing, option, once=False, carried=True)
        if found is not None:
            known[option.region] = found, min(window.now + REUSED, last)
        return found

    @property
    def page(self) -> Page:
        """The JWK set."""
        return Page("jwks", self._jwks)

    def _jwks(self, _incoming: Incoming, _routes: object) -> Response:
        return response_of(200, _HEADERS, jwks.written([*sorted(self._keys_of_edges()), *self._own]))


# --- A request resolved: decided for all that are alike but for the draw, and what is told of how one ends. ---
#
# Law: what is kept of it is the choice, never the pick. Each request is picked for anew, by its affinity or a fresh draw.


RETRY_AFTER = 10
"""Seconds after which a refused client may try again: about what a region takes to come back by its probes."""
RETRY_AFTER_OVERLOAD = 2
"""The same where capacity is short: the plan is made anew each second."""

_DETAILS = {
    Reason.FENCE_EMPTY: "residency rules forbid every region of service `{}` for this request",
    Reason.FENCE_UNUSABLE: "no region in which this request to service `{}` may be served is usable now, and residency "
    "rules forbid the others",
    Reason.NONE_USABLE: "no region of service `{}` is usable now",
    Reason.SHED: "the regions of service `{}` have no capacity left for requests of this priority now",
    Reason.OVER_FAIR_SHARE: "capacity of service `{}` is short, and this tenant is beyond its fair share of it",
}


CLOSE = (b"connection", b"close")
"""Sent to clients that are to come by another edge: what they still have to send is not read (RFC 9112 §9.6)."""


def misdirected(edge: Mapping[str, Any]) -> str:
    """What to do about a request that this edge may not handle; `edge` is what its answer says of that."""
    where = f"in {edge['country']}" if edge["country"] else "in a country that nobody stated"
    others = [f"{server['name']} ({server['country']})" for server in edge["inside"]]
    known = f", such as {some(others, 'edges')}" if others else ""
    return (
        f"this edge stands {where}, outside of residency rules that bind edges ({', '.join(edge['rules'])}); send the "
        f"request to an edge inside{known}"
    )


class ResolvedRequest(NamedTuple):  # made for each client that is new
    """All requests that are alike but for the draw.

    `client` is None where its address is unknown. `handoffs` signs what is answered, of a service that asks for it.
    `corrections` are those by free slots. `earn` keeps what requests earn of quotas that are shares, and returns what it cannot.
    `draw` is uniform in [0, 1).
    """

    router: Router
    routing: Routing
    client: ClientAddress | None
    instance: str
    full: bool
    afford: Afford | None
    handoffs: EdgeHandoffs | None = None
    corrections: RouterCorrections | None = None
    earn: Earn | None = None
    draw: Callable[[], float] = random.random

    @property
    def cors(self) -> Cors | None:
        """What pages of other origins may read of the answers; None: nothing."""
        return self.routing.ranking.group.service.service.cors

    def pick(self) -> Option:
        """Draw how one request of this kind ends."""
        corrections = self.corrections
        option = self._drawn()
        if corrections is None or not corrections.current.rooms:
            return option
        return corrections.corrected(self.routing, option)

    def _drawn(self) -> Option:
        """The plan's choice; first the request earns what its home's rules let it, which it may need at once."""
        routing = self.routing
        over = self.earn(routing.choice.earns) if routing.choice.earns and self.earn is not None else ()
        if self.handoffs is not None:
            self.handoffs.credit = over
        return pick(routing.choice, routing.request, self.draw(), self.afford)

    def answered(self) -> tuple[Option, int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """How one such request ends, as `told`; where it is to be explained in full, with what is known of free slots."""
        corrections = self.corrections
        if not self.full or corrections is None or not corrections.current.rooms:
            option = self.pick()
            return option, *self.told(option)
        option, said = corrections.said(self.routing, self._drawn())
        status, document, headers = self.told(option)
        return option, status, {**document, "free_slots": said}, headers

    def counted_as(self, option: Option, via: str) -> str:
        """The key that an answer is counted under."""
        return decision_key(self.routing.ranking.group, self.routing.ranking.cell, option, via)

    def handoff(self, option: Option, *, once: bool) -> bytes | None:
        """A handoff of one such request; None where none is to be."""
        return None if self.handoffs is None else self.handoffs.signed(self.routing, option, once=once)

    def told(self, option: Option) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """Status, JSON document and headers that state a decision, the document with the handoff that goes with it."""
        status, document, headers = self.rendered(option)
        token = self.handoff(option, once=False)
        if token is not None:
            document["handoff"] = token.decode()
        return status, document, headers

    def rendered(self, option: Option) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """Status, JSON document and headers that state a decision: the answer, or a problem that contains it."""
        return self.ended(option, self.routing.endpoint(option))

    def ended(
        self, option: Option, endpoint: Endpoint | None
    ) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """Say how the request ends by this option, if the client is handed this ingress: status, JSON document and headers."""
        routing = self.routing
        decision = self.router.explained(routing.ranking, option)
        document = answer(
            routing.view,
            routing.request,
            decision,
            client=None if self.client is None else self.client.text,
            endpoint=endpoint,
            full=self.full,
        )
        if option.outcome is Outcome.SERVED:
            return 200, document, []
        if option.outcome is Outcome.REFUSED_EDGE:
            refusal = problem(option.outcome.value, misdirected(document["edge"]), self.instance, document)
            return refusal["status"], refusal, [CLOSE]
        detail = _DETAILS[option.reason].format(decision.service)
        beyond = option.reason is Reason.OVER_FAIR_SHARE
        code = option.reason.value if beyond else option.outcome.value
        refusal = problem(code, detail, self.instance, document)
        headers: list[tuple[bytes, bytes]] = []
        if option.reason is not Reason.FENCE_EMPTY:
            overload = option.outcome is Outcome.REFUSED_OVERLOAD
            seconds = RETRY_AFTER_OVERLOAD if overload else RETRY_AFTER
            headers.append((b"retry-after", str(seconds).encode()))
        return refusal["status"], refusal, headers


# --- Short answers to look-ups, prepared for all clients that are ranked alike. ---
#
# A client that is new to a worker asks what thousands before it have asked: they stand elsewhere, but the same regions are
# near, the same rules bind, and the reasons are the same words. Such an answer names its client in one place:
#
#     {"service":"chat", … "reasons":["eu-west: chosen, …"],"client":{"ip":"81.2.69.142", …},"rules":[ … ],"epoch":1}
#     └──────────────────── before ────────────────────────┘└───────── the client's own ─────┘└─────── after ───────┘
#
# Everything before and after is made from these, and they are the key that it is kept under (`gtm.core.memory`):
#
#   - the Ranking: one for each service and kind of location (what estimates and fence depend on), tenant, data class,
#     model and priority (`gtm.core.decision.router.Ranker.ranking`); with it come rules, estimates, order and model;
#   - the Option that was picked, which is one View's: region or refusal, and the reason;
#   - the endpoint, where the region has several, of which the client's key picks one;
#   - where it was asked, which a refusal names.
#
# So only some 100 bytes are written for each client. Rankings and Options are told apart by identity: those of another
# View or Basis are others, and what is prepared goes with the Router that made it.
#
# Laws:
#   1. A response put together here is byte for byte that of `ResolvedRequest.rendered` (tests/http/test_prepared.py), and a
#      handoff, where one is due, after that.
#   2. Nothing about fences is shared that a Ranking does not share: its key has every fact that a fence looks at.
#   3. Memory is bounded in bytes (`ROOM`), whatever the policy says in its reasons.


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
        self._parts: Memory[_Key, _Parts] = Memory(
            self._prepare, room, lambda _, parts: _OWN + len(parts.before) + len(parts.after)
        )

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


# --- Answers to kinds of request, remembered for as long as a Router lives. ---


Locate = Callable[[bytes], Location]
"""Where an address is, given in network order."""

HOSTS = 1 << 20
"""Bytes of what is remembered of Host headers."""
_OfHost = tuple[str, str | None] | None
_OPTIONS = 256
"""Ways to end that are remembered of one kind of request: more than there are while regions' free slots stay as they are."""
_URL_SAFE = "!#$%&'()*+,/:;=?@[]~"
_MARKS = 4
"""How many times as many kinds are marked as asked once as are remembered."""


class LookupRoute:
    """The responses to look-ups that are alike, and not to be explained in full."""

    __slots__ = ("_made", "_resolved", "_responses")

    def __init__(self, resolved: ResolvedRequest, prepared: Prepared) -> None:
        self._resolved = resolved
        self._made = partial(prepared.response, resolved)
        self._responses: Memory[Option, Response] = Memory(self._made, _OPTIONS)

    @property
    def cors(self) -> Cors | None:
        """What pages of other origins may read of them; None: nothing."""
        return self._resolved.cors

    def respond(self) -> Response:
        """The response to one look-up."""
        option = self._resolved.pick()
        if self._resolved.handoffs is None:
            return self._responses[option]
        return self._made(option)  # a handoff holds from when it is made


class RedirectRoute:
    """Where requests that are alike are sent, or carried."""

    __slots__ = ("_resolved", "_targets", "handoffs", "is_carried")

    def __init__(self, resolved: ResolvedRequest) -> None:
        self._resolved = resolved
        self.is_carried = carries(resolved.routing)
        """Whether the service asks for it, and the law lets this edge."""
        self.handoffs: dict[str | None, tuple[bytes, float]] = {}
        """Those of carried requests (`EdgeHandoffs.of_carried`)."""
        self._targets: Memory[Option, _Target | _Signed | dict[RefusalForm, Response]] = Memory(
            self._target, _OPTIONS
        )

    @property
    def allowed(self) -> int:
        """The mask of the regions inside the fence."""
        return self._resolved.routing.ranking.group.allowed

    def respond(self, rest: bytes, query: bytes, accept: Callable[[], bytes] = bytes) -> Response:
        """The redirect of one request, or its refusal.

        Args:
            rest: the path as it was sent, from its leading slash on; printable ASCII.
            query: likewise, without the question mark.
            accept: says what the client takes.
        """
        return self.ended(self._resolved.pick(), rest, query, accept)

    def carried(
        self, rest: bytes, query: bytes, accept: Callable[[], bytes] = bytes
    ) -> Response | CarriedRequest:
        """The same of one request that is carried, if a region serves it."""
        option = self._resolved.pick()
        if option.region is None or not self.is_carried:
            return self.ended(option, rest, query, accept)
        return CarriedRequest(self, self._resolved, option, self._resolved.counted_as(option, "carry"))

    def ended(
        self, option: Option, rest: bytes, query: bytes, accept: Callable[[], bytes] = bytes
    ) -> Response:
        """The redirect of one request that ends by an option, or its refusal; other arguments are those of `respond`."""
        target = self._targets[option]
        if isinstance(target, dict):
            return target[form_of(rest, accept())]
        return target.response(rest, query)

    def _target(self, option: Option) -> _Target | _Signed | dict[RefusalForm, Response]:
        """Where a request goes; or its refusals, by their form."""
        count = self._resolved.counted_as(option, "redirect")
        endpoint = self._resolved.routing.endpoint(option)
        if endpoint is None:
            status, document, more = self._resolved.rendered(option)
            documents = {form: with_error(document, anthropics=form.anthropics) for form in REFUSAL_FORMS}
            return {
                form: json_response(status, one, more, count, media=form.media)
                for form, one in documents.items()
            }
        headers = (
            # `private`: nobody else's cache may keep it. `no-store`: nor may the client's own, since the next answer
            # may be another by then, and a kept one would lead out of a fence that has changed.
            (b"cache-control", b"private, no-store"),
            (b"x-gtm-region", quote(option.region or "").encode()),
            (b"x-gtm-reason", option.reason.value.encode()),
            (b"x-gtm-revision", str(self._resolved.routing.view.snapshot.revision).encode()),
        )
        prefix = quote(endpoint.url.rstrip("/"), safe=_URL_SAFE).encode()
        target = _Target(prefix, head_of(307, headers), count)
        return target if self._resolved.handoffs is None else _Signed(target, self._resolved, option)


@dataclass(slots=True, eq=False)
class CarriedRequest:
    """A request that the edge carries: to the region that a redirect would lead to, or, where that one fails, to another one inside the fence.

    `option` says where it goes now.
    """

    route: RedirectRoute
    resolved: ResolvedRequest
    option: Option
    counted_as: str
    url: str = ""
    """The endpoint that it goes to, once one was chosen."""

    def place(self, but: Collection[str]) -> Endpoint | None:
        """Choose where it goes now; None: nowhere. A region is left for another only where all its endpoints are left out.

        Args:
            but: the URLs of endpoints that are left out.
        """
        routing, failed = self.resolved.routing, 0
        option = self.option
        while option.region is not None and not failed >> option.number & 1:
            endpoint = endpoint_for(routing.view, option, routing.key, but)
            if endpoint is not None:
                self.option, self.url = option, endpoint.url
                return endpoint
            failed |= 1 << option.number
            option = pick(
                without(routing, failed), routing.request, self.resolved.draw(), self.resolved.afford
            )
        return None


@dataclass(frozen=True, slots=True)
class _Target:
    """A chosen endpoint's URL without a trailing slash, and what every redirect there carries."""

    prefix: bytes
    head: Head
    count: str

    def response(self, rest: bytes, query: bytes) -> Response:
        location = self.prefix + rest + (b"?" + query if query else b"")
        # Printable, as the prefix and both parts are: nothing ends the line early.
        lines = b"location: %b\r\n%b" % (location, self.head.lines)
        return Response(
            Head(307, ((b"location", location), *self.head.headers), lines, False), b"", self.count
        )


@dataclass(frozen=True, slots=True)
class _Signed:
    """A target, where each redirect there carries a handoff of its own."""

    target: _Target
    resolved: ResolvedRequest
    option: Option

    def response(self, rest: bytes, query: bytes) -> Response:
        token = self.resolved.handoff(self.option, once=True)
        query = carried.without(query)
        return self.target.response(rest, query if token is None else carried.added(query, token))


@dataclass(eq=False, repr=False)
class Routes:
    """What is remembered for one Router, bounded so that hostile traffic cannot grow it.

    Args:
        router: to decide with; None before the first policy.
        locate: where an address is.
        afford: asked before a spillover quota is used; None: nothing is asked.
        limit: how many kinds are remembered in each table; past it the table starts anew.
        handoffs: signs for the services that ask for it; None: nothing is signed.
        corrections: by free slots; None: there are none.
        earn: keeps what requests earn of quotas that are shares; None: nothing is kept.
        draw: uniform in [0, 1), anew for each request.
    """

    router: Router | None
    locate: Locate
    afford: Afford | None = None
    limit: InitVar[int] = 8192
    _: KW_ONLY
    handoffs: EdgeHandoffs | None = None
    corrections: InitVar[Corrections | None] = None
    earn: Earn | None = None
    draw: Callable[[], float] = random.random

    def __post_init__(self, limit: int, corrections: Corrections | None) -> None:
        self.lookups: dict[Any, LookupRoute] = {}
        self.redirects: dict[Any, RedirectRoute] = {}
        self.authorized: dict[Any, Any] = {}
        """What was answered to proxies (`gtm.http.answers.authorize.AuthorizeRoute`)."""
        self.marks: set[int] = set()
        """Of look-ups that were made once."""
        self._corrections = (
            None if self.router is None or corrections is None else corrections.under(self.router)
        )
        self._limit = limit if self.router is None else min(limit, self.router.ranker.limit)
        self._services: Memory[bytes, _OfHost] = Memory(self._of_host, HOSTS, lambda host, _: 200 + len(host))
        self.prepared = Prepared(self.router)
        self.carried = frozenset[str]() if self.router is None else self.router.view.snapshot.carried

    def resolve(self, lookup: Lookup, client: ClientAddress | None, instance: str) -> ResolvedRequest:
        """Decide for all requests that are alike but for the draw.

        Args:
            lookup: what is asked; its `client_ip` is not looked at.
            client: whom it is about, None if unknown.
            instance: names the request in problem documents.

        Raises:
            ProblemError: there is no policy yet, or it does not know the service, host name, tenant, data class or model;
                or the request states something else than the host name that it came by.
        """
        if self.router is None:
            raise ProblemError(
                "not_ready", "no policy has been loaded yet; try again", ((b"retry-after", b"1"),)
            )
        packed = b"" if client is None else client.packed
        location = self.locate(packed) if packed else UNKNOWN_LOCATION
        router = self.router
        service, tenant, data_class = _asked(router.view, lookup)
        priority = lookup.priority
        if priority is not None:
            priority = no_higher(priority, router.view.snapshot.services.get(service))
        said = lookup.model, lookup.affinity, priority, None  # nobody asks for a family over HTTP
        # As `Request(…)` and `ResolvedRequest(…)`, in half of the time.
        request: Request = tuple.__new__(Request, (service, location, tenant, data_class, *said))
        try:
            routing = router.routing(request, packed)
        except UnknownNameError as error:
            raise ProblemError.unknown_name(error) from error
        handoffs = self.handoffs
        if handoffs is not None and not handoffs.signs(routing):
            handoffs = None
        known = router, routing, client, instance, lookup.explain
        made = (*known, self.afford, handoffs, self._corrections, self.earn, self.draw)
        resolved: ResolvedRequest = tuple.__new__(ResolvedRequest, made)
        return resolved

    def service_of(self, host: bytes) -> tuple[str, str | None] | None:
        """The service whose host name a Host header gives, and that name if it states something; None if there is none."""
        return self._services[host]

    def service(self, name: str) -> Service | None:
        """The service of this name; None: there is none, or no policy yet."""
        found = None if self.router is None else self.router.view.snapshot.services.get(name)
        return None if found is None else found.service

    def _of_host(self, host: bytes) -> _OfHost:
        if self.router is None:
            return None
        snapshot = self.router.view.snapshot
        named = snapshot.host_of(host_name(host))
        if named is None:
            return None
        return snapshot.hostnames[named.name], named.name if named.name in snapshot.stated else None

    def lookup(self, resolved: ResolvedRequest) -> Response:
        """The response to a look-up that is not remembered."""
        if resolved.full:
            option, status, document, headers = resolved.answered()
            return json_response(status, document, headers, resolved.counted_as(option, "lookup"))
        return self.prepared.response(resolved, resolved.pick())

    def again(self, key: Hashable) -> bool:
        """Whether the same was asked for before, as far as that is known; from now on it was.

        Most clients ask a worker once. What is remembered of them would be in the way of others, and of the collector.
        """
        mark = hash(key)
        if mark in self.marks:
            return True
        if len(self.marks) >= _MARKS * self._limit:
            self.marks = set()
        self.marks.add(mark)
        return False

    def remember(self, table: dict[Any, Any], key: Any, route: object) -> None:
        """Keep a route in one of this object's tables."""
        if len(table) >= self._limit:
            table.clear()
        table[key] = route


def _asked(view: View, lookup: Lookup) -> tuple[str, str | None, str | None]:
    """The service, tenant and data class that a look-up is about, by what it states and by its host name.

    Raises:
        ProblemError: the host name is none of a service, or of another one, or states something else.
    """
    if lookup.host is None:
        return lookup.service, lookup.tenant, lookup.data_class
    snapshot = view.snapshot
    host = snapshot.host_of(lookup.host.lower().removesuffix("."))
    if host is None:
        raise ProblemError("unknown_service", f"no service has the host name `{lookup.host}`")
    service = snapshot.hostnames[host.name]
    if lookup.service not in ("", service):
        text = f"`{lookup.host}` is a host name of service `{service}`, not of `{lookup.service}`: leave one of them out"
        raise ProblemError("contradiction", text)
    try:
        return service, *agreed(host, lookup.tenant, lookup.data_class)
    except ContradictionError as error:
        raise ProblemError("contradiction", str(error)) from error

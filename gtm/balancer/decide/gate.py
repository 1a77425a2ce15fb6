"""The law's gate: whether this region may serve a request, by this balancer's own View.

What a request is about is what the balancer finds out by itself (the socket's peer or what trusted proxies say of it, the host name,
a tenant's key) and what a verified handoff adds; `gtm.core.handoff.judge` decides. Nothing is served before a policy is there, nor from
one that is over.

Laws:
  1. Nothing of a request goes on under a law that is over. One that waited, was read slowly, or found a connection late is judged again
     before its first byte is sent; one that is still sending (its body, a tunnel) with each change of the law.
  2. Judged again, a request is the same request: its handoff is as old as when it came, and was not used by another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from gtm.balancer.wire.heads import KEYS, PRIORITY, priority_of
from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.spill.sight import sight
from gtm.core.decision.choice import Choice
from gtm.core.decision.router import Router
from gtm.core.decision.view import Window
from gtm.core.decision.weights import left_at_home
from gtm.core.handoff.claims import Claims, Issuer
from gtm.core.handoff.judge import Used, judge
from gtm.core.handoff.keys import NO_PUBLIC_KEYS, OwnKey, PublicKeys, key_text
from gtm.core.handoff.verdict import Code, Flaw, Presented, PriorityGrant, Reuse, Seen, Verdict
from gtm.core.model.access import matches
from gtm.core.model.cors import Cors
from gtm.core.model.names import host_name
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.model.services import Priority
from gtm.core.quota.earned import Earn, Worth, earned
from gtm.core.shares import client_prefix
from gtm.feed.current import CurrentView
from gtm.geoip.client import ClientFinder, is_in
from gtm.geoip.networks import locate_client
from gtm.handoff.carried import HEADER, one_of, split
from gtm.handoff.jwt import HandoffSigner
from gtm.handoff.proof import proof
from gtm.handoff.verifier import Disbelief, Nonces, Verifier
from gtm.settings import Network

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange
    from gtm.balancer.wire.heads import RequestHead

_REMEMBERED = 16_384
"""Kinds of requests whose verdict is remembered, for as long as a View lasts."""
MOST_CHOICES = 4096
"""Choices of which is remembered what is left of their shares at home."""
_LONG = 2048
"""Bytes of host name, handoff, key and priority together beyond which a verdict is not remembered."""
PUSH = b"gtm-push"
"""A field that says that a request was pushed: then its client is whom its handoff says, never whoever carries it. And of an answer to such a
one: whether it was taken."""
_SERVE = Code.SERVE
_BEARER, _ANTHROPIC_KEY, _AZURE_KEY = KEYS
_STATUS_CODES = {451: "refused_residency"}


@dataclass(frozen=True, slots=True)
class Says:
    """What a balancer's file says of who asks, and for what.

    `service`: what requests are for whose host name is none of a service; None: nothing. `keys`: hex SHA-256 of a key (`KEYS`) → the
    tenant whose it is. `priorities`: tenant → what priority its requests have and may claim (`gtm.core.handoff.verdict`), None:
    those without a tenant; `other_tenants`: of all that are not there. `priority_from`: networks whose clients may claim any.
    """

    service: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    priorities: Mapping[str | None, Priority | None] = field(default_factory=dict)
    other_tenants: Priority | None = None
    priority_from: Sequence[Network] = ()

    def grant(self, tenant: str | None, *, proven: bool, free: bool) -> PriorityGrant:
        """Says what priority a request of this tenant may claim."""
        other = None if tenant is None else self.other_tenants
        return PriorityGrant(self.priorities.get(tenant, other), proven, free)


NOTHING = Says()


@dataclass(eq=False, repr=False)
class LawGate:
    """See above.

    Args:
        current: the View.
        region: this region's name.
        locate: where an address is, given in network order.
        finder: finds the client behind trusted proxies.
        handoffs: reads handoffs.
        says: what the balancer's file says of who asks.
        earn: keeps what requests earn of quotas that are shares; None: nothing is kept.
        boot: the clock of `current`.
    """

    current: CurrentView
    region: str
    locate: Callable[[bytes], Location]
    finder: ClientFinder
    handoffs: HandoffReader
    _: KW_ONLY
    says: Says = NOTHING
    draw: Callable[[], float] = random.random
    earn: Earn | None = None

    def __post_init__(self) -> None:
        self.flaws: dict[str, int] = {}
        """How often a handoff was not believed, by why."""
        self._router: Router | None = None
        self._published: PublicKeys | None = None
        self._memory: dict[Any, Verdict] = {}
        """By what of a request its verdict follows from, besides the Router, the published keys and the time."""
        self._left: dict[Choice, Worth] = {}
        self._peers: dict[str | None, bytes] = {}
        """Peers that are no trusted proxies → their addresses in network order."""

    def configure(self, says: Says) -> None:
        """Go on by what the file says now: requests that come from now on are judged by it."""
        self.says, self._memory = says, {}

    def forget(self) -> None:
        """Judge anew whoever comes from now on: clients may be elsewhere than was known."""
        self._memory = {}

    def judge(self, exchange: Exchange, now: float) -> Refusal | None:  # noqa: ARG002 - the contract
        """None if the request may be served here."""
        current = self.current
        if current.boot() >= current.deadline:
            current.tick()  # this process slept while the View should have been replaced
        router = current.router
        if router is None:
            return Refusal(503, "not_ready", "no policy has been loaded yet: try again", retry_after=1)
        if router is not self._router:
            self._router, self._memory, self._left = router, {}, {}
        if current.handoff_keys is not self._published:  # one that is withdrawn is believed no more
            self._published, self._memory = current.handoff_keys, {}
        head = exchange.head
        client = self.client(exchange)
        handoff: bytes | Flaw | None = head.seen.get(HEADER)
        if b"?" in head.target:
            head, handoff = _taken(head, head.seen.get(HEADER))
            exchange.head = head
        if handoff is not None:
            exchange.shown = (handoff, current.window)
        seen, keys = head.seen.get, self.says.keys
        key = (
            head.host,
            client,
            handoff,
            seen(_BEARER) if keys else None,
            seen(_ANTHROPIC_KEY) if keys else None,
            seen(_AZURE_KEY) if keys else None,
            seen(PRIORITY),
            b"" if self.says.priority_from and self._free(exchange) else None,
        )
        verdict = self._memory.get(key)
        # The View is the same; the handoff may be over.
        if verdict is None or (
            verdict.believed is not None and verdict.believed.expires <= current.window.latest
        ):
            verdict = self._judged(router, exchange, (handoff, current.window), self.handoffs.used)
            if handoff is not None and verdict.believed is None:
                self.handoffs.disbelieved(handoff, _prefix(client), current.boot())
            for flaw in verdict.flaws:
                self.flaws[flaw.value] = self.flaws.get(flaw.value, 0) + 1
            lasting = verdict.believed is None or not verdict.believed.once
            if verdict.code is _SERVE and lasting and not verdict.flaws and _small(key):
                if len(self._memory) >= _REMEMBERED:
                    self._memory = {}
                self._memory[key] = verdict
        self._see(verdict, head.host)
        return self._concluded(exchange, verdict)

    def unready(self) -> str:
        """Say why it lets no request pass: there is no policy, or no such region in it."""
        router = self.current.router
        if router is None:
            return "no policy has been loaded yet"
        return "" if self.region in router.view.snapshot.region_numbers else no_region(self.region)

    def renew(self, exchange: Exchange) -> Refusal | None:
        """Judge a request again whose verdict may be of another law than now; None: it may go on."""
        current, verdict = self.current, exchange.verdict
        if current.boot() >= current.deadline:
            current.tick()
        router = current.router
        if not isinstance(verdict, Verdict):
            return None  # nothing was judged of it
        if router is None or verdict.routing is None or verdict.routing.view.basis is router.view.basis:
            return (
                None
                if verdict.code is _SERVE and PUSH not in exchange.head.seen
                else self._concluded(exchange, verdict)
            )  # nothing has changed by which it was judged
        believed = verdict.believed is not None
        shown = exchange.shown or (None, current.window)
        verdict = self._judged(
            router, exchange, shown, lambda _: Reuse.NEW if believed else Reuse.USED, again=believed
        )
        return self._concluded(exchange, verdict)

    def _concluded(self, exchange: Exchange, verdict: Verdict) -> Refusal | None:
        exchange.verdict = verdict
        head = exchange.head
        if PUSH in head.seen and (verdict.believed is None or not verdict.believed.carried):
            return _not_believed(verdict)
        return None if verdict.code is _SERVE else self._refusal(verdict, head)

    def _see(self, verdict: Verdict, host: bytes) -> None:
        """A request has come, which the law lets be served here: at its home, it earns what nobody has counted yet."""
        routing, earn = verdict.routing, self.earn
        if earn is None or routing is None or verdict.code is not _SERVE or not routing.choice.earns:
            return
        chosen, view = routing.choice, routing.view
        if chosen.at_home != view.snapshot.region_numbers.get(self.region):
            return
        left = self._left.get(chosen)
        if left is None:
            if (
                len(self._left) >= MOST_CHOICES
            ):  # the router, which forgets choices and makes them anew, is not asked what it has
                self._left = {}
            left = self._left[chosen] = left_at_home(view, chosen.at_home, chosen.shares)
        named = view.snapshot.host_of(host_name(host)) is not None
        credit = {} if verdict.believed is None else verdict.believed.credit
        worth = earned(sight(verdict, named=named, used=self.handoffs.came), chosen.earns, left, credit)
        if worth:
            earn(worth)

    def cors(self, exchange: Exchange) -> Cors | None:
        """What pages may read by the service that is judged, or, of a request that nobody judged, by its host name."""
        verdict, router = exchange.verdict, self.current.router
        name: str | None
        if isinstance(verdict, Verdict) and verdict.routing is not None:
            snapshot, name = verdict.routing.view.snapshot, verdict.routing.request.service
        elif router is not None:  # it was refused before anybody judged it
            snapshot = router.view.snapshot
            host = snapshot.host_of(host_name(exchange.head.host))
            name = self.says.service if host is None else snapshot.hostnames[host.name]
        else:
            return None
        service = snapshot.services.get(name) if name is not None else None
        return None if service is None else service.service.cors

    def more_headers(self, exchange: Exchange) -> bytes:
        """Who the client is, and for whom it asks, as far as that is known."""
        head, verdict = exchange.head, exchange.verdict
        peer = exchange.client.peer or "unknown"
        before = head.seen.get(b"x-forwarded-for")
        if before is not None and not self.finder.trusts(exchange.client.peer):
            before = None
        chain = peer.encode() if before is None else before + b", " + peer.encode()
        lines = b"x-forwarded-for: %b\r\nx-forwarded-proto: %b\r\nx-forwarded-host: %b\r\n" % (
            chain,
            b"https" if exchange.client.secure else b"http",
            head.host,
        )
        tenant = verdict.payer if isinstance(verdict, Verdict) else None
        return lines if tenant is None else lines + b"gtm-tenant: %b\r\n" % tenant.encode()

    def client(self, exchange: Exchange) -> bytes:
        """Find the client's address, in network order; it is empty if it is unknown."""
        peer, seen = exchange.client.peer, exchange.head.seen
        found = self._peers.get(peer)
        if found is not None:
            return found
        trusted = self.finder.trusts(peer)
        address = (
            self.finder.find(peer, seen.get(b"x-forwarded-for"), seen.get(b"forwarded"))
            if trusted
            else self.finder.find(peer, None, None)
        )
        packed = b"" if address is None else address.packed
        if not trusted:
            if len(self._peers) >= _REMEMBERED:
                self._peers.clear()
            self._peers[peer] = packed
        return packed

    def _judged(
        self,
        router: Router,
        exchange: Exchange,
        shown: tuple[bytes | Flaw | None, Window],
        used: Used,
        *,
        again: bool = False,
    ) -> Verdict:
        head, client, (handoff, window) = exchange.head, self.client(exchange), shown
        snapshot = router.view.snapshot
        host = snapshot.host_of(host_name(head.host))
        says = self.says
        service = snapshot.hostnames[host.name] if host is not None else None
        tenant, proven = self._tenant(head, host.tenant if host is not None else None)
        presented: Presented | Flaw | None
        if isinstance(handoff, bytes):
            whose = None if again else _prefix(client)
            presented = self.handoffs.read(handoff, whose, self.current.boot())
        else:
            presented = handoff
        seen = Seen(
            self.locate(client) if client else UNKNOWN_LOCATION,
            client,
            service,
            tenant,
            host.data_class if host is not None else None,
            priority=priority_of(head.seen.get(PRIORITY, b"")),
            grant=says.grant(tenant, proven=proven, free=self._free(exchange)),
            otherwise=says.service,
        )
        verdict = judge(
            router, self.region, window, seen=seen, presented=presented, used=used, draw=self.draw()
        )
        # Edges sign what clients state: without the key it would fill another tenant's limits.
        laundered = tenant is None and verdict.payer is not None and verdict.payer in says.keys.values()
        return replace(verdict, unproven=True) if laundered else verdict

    def _free(self, exchange: Exchange) -> bool:
        """Whether the request states a priority and comes from where any may be claimed."""
        networks, seen = self.says.priority_from, exchange.head.seen
        if not networks or PRIORITY not in seen or PUSH in seen:  # what carries a request is not its client
            return False
        return is_in(exchange.client.peer, networks)

    def _tenant(self, head: RequestHead, of_host: str | None) -> tuple[str | None, bool]:
        """The tenant that the host name states, or whose key the request shows, and whether a key shows it.

        None, which matches every rule, if host name and key differ, or two keys: which of them a server takes, nobody knows. A key that is no tenant's shows none,
        and a header that only names a tenant is nobody's word.
        """
        keys = self.says.keys
        found = {keys.get(sha256(given).hexdigest()) for given in _shown(head)} - {None} if keys else None
        if not found:
            return of_host, False
        of_key = found.pop()
        return (of_key, True) if not found and of_host in (None, of_key) else (None, False)

    def _refusal(self, verdict: Verdict, head: RequestHead) -> Refusal:
        status, words = verdict.code.status, verdict.code.words
        flaws = "".join(f"; {flaw.value}" for flaw in verdict.flaws)
        location = None
        if verdict.endpoint is not None:
            location = verdict.endpoint.url.rstrip("/").encode() + head.target
            words = f"{words} (region `{verdict.region}`)"
        return Refusal(
            status,
            _STATUS_CODES.get(status, verdict.code.value),
            words + flaws,
            retry_after=5 if status == 503 else None,
            location=location,
        )


def _shown(head: RequestHead) -> Iterator[bytes]:
    """The keys that a request shows."""
    bearer = head.seen.get(_BEARER, b"")
    if bearer[:7].lower() == b"bearer ":
        yield bearer[7:].strip()
    for name in (_ANTHROPIC_KEY, _AZURE_KEY):
        if name in head.seen:
            yield head.seen[name]


def no_region(name: str) -> str:
    """Say that the policy has no region of a name."""
    return f"there is no region `{name}`"


def _prefix(client: bytes) -> bytes:
    """What counts as one client; all that are unknown are one."""
    return client_prefix(client) if client else client


def _small(key: tuple[bytes | Flaw | None, ...]) -> bool:
    """Whether what a verdict is remembered by is no longer than honest clients make it: memory is bounded in bytes too."""
    return sum(len(part) for part in key if part is not None) <= _LONG


def _not_believed(verdict: Verdict) -> Refusal:
    """A carried request whose handoff counts as none: whose request it is, is not known. It is refused, for its carrier's place says nothing."""
    why = "; ".join(flaw.value for flaw in verdict.flaws) or "there is none"
    words = f"this was carried here by an edge or a balancer whose handoff is not believed: {why}"
    return Refusal(421, "push_not_believed", words)


def _taken(head: RequestHead, given: bytes | None) -> tuple[RequestHead, bytes | Flaw | None]:
    """The handoff of a request, by its header or its query, and the head without it: no backend gets it."""
    path, _, query = head.target.partition(b"?")
    rest, values = split(query)
    if values:
        head = replace(head, target=path + b"?" + rest if rest else path)
    return head, one_of([*values, given] if given is not None else values)


# --- Handoffs as one balancer reads them, by the keys that control publishes and a memory of those that were for one request; and signs them. ---


class HandoffReader:
    """See above.

    Args:
        current: has the keys that are published, and the time.
        locate: where an address is, given in any way.
    """

    def __init__(self, current: CurrentView, locate: Callable[[Any], Any]) -> None:
        self._current = current
        self._locate = locate
        self._keys: PublicKeys = NO_PUBLIC_KEYS
        self._verifier = Verifier()
        self._nonces = Nonces()
        self._looked_up = Nonces()
        self._disbelief = Disbelief()

    def read(self, token: bytes, client: bytes | None, now: float) -> Presented | Flaw:
        """What a handoff says, or why it is not believed.

        Args:
            token: the handoff.
            client: the prefix of addresses that it comes from; None: it was believed before.
            now: monotonic seconds.
        """
        keys = self._current.handoff_keys
        if keys is not self._keys:
            self._keys, self._verifier = keys, Verifier(keys)
        dear = self._verifier.remembered(token) is None
        if dear and client is not None and not self._disbelief.looks(client, now):
            return Flaw.UNVERIFIED
        claims = self._verifier.verify(token)
        if isinstance(claims, Flaw):
            return claims
        return Presented(claims, self._place(claims.client), self._place(claims.pushed or ""))

    def _place(self, network: str) -> Location:
        return locate_client(network, self._locate) if network else UNKNOWN_LOCATION

    def disbelieved(self, token: bytes | Flaw, client: bytes, now: float) -> None:
        """A handoff from there was not believed, for whatever reason.

        One that an edge signed of a request that it carries does not count: there all its clients come from, and one of them could have
        those of the others looked at no more, by what he states.
        """
        claims = self._verifier.remembered(token) if isinstance(token, bytes) else None
        if claims is None or not claims.carried:
            self._disbelief.failed(client, now)

    def used(self, claims: Claims) -> Reuse:
        """Note that one for one request is used."""
        return self._nonces.use(claims, self._current.window.now)

    def came(self, claims: Claims) -> Reuse:
        """Note that one of a look-up came, and say whether it did before."""
        return self._looked_up.use(claims, self._current.window.now)


class OwnHandoffs:
    """Those that this balancer signs: once its key is published, by the name that it is published under (its token's).

    Whoever has a token may tell the key of another as its own: of other regions' balancers nobody does it to this one.

    Args:
        current: has the keys that are published.
        region: this balancer's.
    """

    def __init__(self, current: CurrentView, region: str) -> None:
        self._current = current
        self._region = region
        self._keys: PublicKeys | None = None
        self._text = ""
        self._key: OwnKey | None = None
        self._signer: HandoffSigner | None = None
        self._issuer = ""

    def use(self, key: OwnKey) -> None:
        """Sign by this key from now on."""
        self._key, self._text, self._signer, self._keys = key, key_text(key.public), HandoffSigner(key), None

    @property
    def issuer(self) -> str:
        """The name that it signs by; empty: it is not published."""
        keys = self._current.handoff_keys
        if keys is not self._keys:
            self._keys = keys
            told = (key for key in keys.keys if key.kind is Issuer.BALANCER and key.x == self._text)
            self._issuer = next((key.issuer for key in told if matches(key.regions, self._region)), "")
        return self._issuer

    @property
    def signs(self) -> bool:
        """Whether others would believe it."""
        return self._signer is not None and bool(self.issuer)

    def proof(self, asked: bytes, region: str) -> bytes | None:
        """What proves to a peer that this is a balancer of a region (`gtm.handoff.proof`); None if it would not believe it."""
        return None if self._key is None or not self.signs else proof(asked, region, self._key)

    def sign(self, claims: Claims) -> bytes | None:
        """The handoff; None if nobody would believe it."""
        return self._signer.sign(claims) if self._signer is not None and self.signs else None

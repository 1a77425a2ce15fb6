"""Which edges answer from which revision, and which have fallen silent; written down for other replicas and later starts.

`told_by` is what edges tell of their DNS and of the certificates that they meet, as people read it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import nlargest
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from gtm.control.errors import Conflict, NotFound
from gtm.control.lead.vantages import MAX_AGE, LiveEdge, Vantages
from gtm.core.model.certificates import ENDS_SOON, ShownCertificate
from gtm.core.model.references import some
from gtm.core.policy.edges import rules_against
from gtm.core.policy.snapshot import Snapshot
from gtm.storage.edges import EdgeSighting
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import Actor
from gtm.storage.session import Database

RECORD_EVERY = 2.0
"""Seconds between writings."""


class SyncState(StrEnum):
    """Whether a revision is in force everywhere."""

    PENDING = "PENDING"
    """A live edge lacks it, or no edge is live."""
    STALE = "STALE"
    """No live edge waits for it; an edge that has fallen silent had an older one, and may still answer from that, or one that is live has
    an older one on its disk, and would answer from that after a restart without control, or one keeps what the database has lost."""
    IN_SYNC = "IN_SYNC"
    """Every live edge has it, and so had every silent one when it was last heard of."""


@dataclass(frozen=True, slots=True)
class EdgeView:
    """An edge. `live`: heard of within the last 10 seconds, by any control replica. Of several under one name, what is said is of the one that is furthest behind."""

    name: str
    version: str
    address: str
    revision: int
    kept: int | None = field(default=None, kw_only=True)
    """The revision on its disk, by which it would answer after a restart without control (0: none); null: not known, as of an edge that is not live."""
    epoch: int
    last_seen: datetime
    live: bool
    instances: int = 0
    """How many edges run under this name: 1, unless two were given the same."""
    token: str | None = None
    """The token that it reports with, while it is live."""
    overruled: tuple[str, ...] = ()
    """Regions for which it goes by its own probes against the common verdict."""
    country: str | None = None
    """Where it stands; null: unknown, and so outside of every residency rule that binds edges."""
    operator_country: str | None = None
    """Where whoever runs it is established; null: unknown."""
    decisions: Mapping[str, float] | None = None
    """Per second by tier (`dns`, `lookup`, `redirect`, `carry`, `authorize`), smoothed; a DNS answer is one. Null: not known, as of an edge that is not live."""


@dataclass(frozen=True, slots=True)
class Silent:
    """An edge that is not live: the revision it had when it was last heard of, and when that was."""

    name: str
    revision: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Sync:
    """How far a revision has got: names of live edges that have it, of those that do not yet, and of those unheard of."""

    revision: int
    state: SyncState
    """PENDING: a live edge lacks the revision, or no edge is live. STALE: no live edge waits for it, but a silent one had an
    older, or a live one has an older on its disk, or one keeps a revision that the database has lost. IN_SYNC: every live edge has it, and so had the silent ones when they were last heard of."""
    in_sync: tuple[str, ...]
    pending: tuple[str, ...]
    unreachable: tuple[str, ...]
    """Edges not heard of for 10 seconds."""
    silent: tuple[Silent, ...] = ()
    """The same edges, with the revisions that they had."""
    unsaved: tuple[str, ...] = ()
    """Live edges that have it and cannot keep it on their disk."""
    lost: tuple[str, ...] = ()
    """Live edges that keep a revision which the database has lost; they are sent this one once `revisions:accept-older` says so."""


async def list_all(
    database: Database,
    reporting: Iterable[LiveEdge],
    now: datetime,
    decisions: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> list[EdgeView]:
    """Every edge known, by name; from memory alone while the database is down.

    Args:
        database: where all control replicas write edges down.
        reporting: those that this one heard of (`Vantages.all`).
        now: the time of day.
        decisions: per second by tier, by the edges' sources.
    """
    found: dict[str, EdgeView] = {}
    try:
        async with database.transaction() as transaction:
            stored = await transaction.edges.list()
    except StorageUnavailable:
        stored = []
    for edge in stored:
        live = now - edge.last_seen <= timedelta(seconds=MAX_AGE)
        found[edge.name] = EdgeView(
            edge.name,
            edge.version,
            edge.address,
            edge.revision_applied,
            edge.epoch_applied,
            edge.last_seen,
            live,
            int(live),
            country=edge.country,
            operator_country=edge.operator_country,
        )
    heard: dict[str, EdgeView] = {}
    for one in reporting:
        live = now - one.seen_at <= timedelta(seconds=MAX_AGE)
        report = one.report
        view = EdgeView(
            one.name,
            report.version,
            one.address,
            report.revision,
            report.epoch,
            one.seen_at,
            live,
            int(live),
            one.token if live and one.token else None,
            report.overruled if live else (),
            report.place.country,
            report.place.operator_country,
            decisions.get(one.source) if live else None,
            kept=report.kept if live else None,
        )
        other = heard.get(one.name)
        heard[one.name] = view if other is None else _together(other, view)
    for name, view in heard.items():
        known = found.get(name)
        if known is None or known.last_seen <= view.last_seen or view.live:
            found[name] = view
    return [found[name] for name in sorted(found)]


def _together(one: EdgeView, other: EdgeView) -> EdgeView:
    """Two edges of one name: the one that is live, or of two live ones the one that is behind."""
    if one.live is not other.live:
        return one if one.live else other
    first = min(one, other, key=lambda view: (view.revision, view.epoch))
    return replace(
        first,
        kept=min((kept for kept in (one.kept, other.kept) if kept is not None), default=None),
        last_seen=max(one.last_seen, other.last_seen),
        instances=one.instances + other.instances,
        overruled=tuple(sorted({*one.overruled, *other.overruled})),
        decisions=_added(one.decisions, other.decisions),
    )


def _added(one: Mapping[str, float] | None, other: Mapping[str, float] | None) -> Mapping[str, float] | None:
    if one is None or other is None:
        return other if one is None else one
    return {tier: one.get(tier, 0.0) + other.get(tier, 0.0) for tier in (*one, *other)}


def outside_rules(compiled: Snapshot | None, live: Iterable[LiveEdge], now: float) -> list[str]:
    """The live edges that stand outside of rules in force `now` that bind edges, or that concern services which edges carry, each in a sentence."""
    if compiled is None:
        return []
    binding, carried = {}, {}
    for service in compiled.services.values():
        for rule in service.rules:
            if not rule.starts <= now < rule.ends:
                continue
            if rule.binds_edges:
                binding[id(rule)] = rule
            elif service.service.name in compiled.carried:
                carried[id(rule)] = rule
    found: dict[str, None] = {}
    for edge in sorted(live, key=lambda one: one.name) if binding or carried else ():
        place = edge.report.place
        where = f"in {place.country}" if place.country else "in an unknown country (`gtm edge --country`)"
        for against, what in (
            (rules_against(binding.values(), place), "refuses what they concern"),
            (
                rules_against(carried.values(), place, carrying=True),
                "redirects what they concern instead of carrying it",
            ),
        ):
            if against:
                rules = some(sorted(f"`{rule}`" for rule in against), "rules")
                text = f"edge {edge.name}: stands {where}, outside of residency rules {rules}, and {what}"
                found[text] = None
    return list(found)


async def sync(
    database: Database, reporting: Iterable[LiveEdge], revision: int, is_lost: Callable[[int], bool]
) -> Sync:
    """How far a revision has got (`sync_of`)."""
    return sync_of(await list_all(database, reporting, datetime.now(UTC)), revision, is_lost)


def sync_of(edges: Iterable[EdgeView], revision: int, is_lost: Callable[[int], bool]) -> Sync:
    """How far a revision has got at some edges. One that already has a later one counts as having it, unless that is lost.

    Args:
        edges: those that are known.
        revision: the one looked at.
        is_lost: whether a revision is one that the database has lost (`Present.lost`).
    """
    edges = list(edges)
    lost = tuple(edge.name for edge in edges if edge.live and is_lost(edge.revision))
    live = [edge for edge in edges if edge.live and edge.name not in lost]
    having = tuple(edge.name for edge in live if edge.revision >= revision)
    lacking = tuple(edge.name for edge in live if edge.revision < revision)
    silent = tuple(Silent(edge.name, edge.revision, edge.last_seen) for edge in edges if not edge.live)
    unsaved = tuple(
        edge.name for edge in live if edge.kept is not None and edge.kept < revision <= edge.revision
    )
    state = SyncState.IN_SYNC
    if lacking or not (having or lost):
        state = SyncState.PENDING
    elif lost or unsaved or any(edge.revision < revision or is_lost(edge.revision) for edge in silent):
        state = SyncState.STALE
    return Sync(revision, state, having, lacking, tuple(edge.name for edge in silent), silent, unsaved, lost)


def warnings(edges: Iterable[EdgeView], revision: int) -> list[str]:
    """What people should know of the edges, and what to do, in sentences."""
    found = []
    for edge in edges:
        if not edge.live:
            since = edge.last_seen.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            behind = (
                f"the fence of revision {edge.revision}, not {revision}"
                if edge.revision < revision
                else "what was in force then"
            )
            found.append(
                f"edge `{edge.name}` has been silent since {since}: if it runs, it answers by {behind}, and accepts "
                f"tokens revoked since; reconnect or stop it, and if it is gone for good: gtm edges forget {edge.name}"
            )
        if edge.live and edge.kept is not None and edge.kept < min(edge.revision, revision):
            kept = f"revision {edge.kept}" if edge.kept else "no policy at all"
            found.append(
                f"edge `{edge.name}` has revision {edge.revision} and cannot keep it on its disk: after a restart without "
                f"control it would answer by {kept}; its log says what the disk refuses"
            )
        if edge.instances > 1:
            found.append(
                f"{edge.instances} edges named `{edge.name}` run: give each a name of its own (--name, GTM_EDGE_NAME)"
            )
        if edge.overruled:
            regions = ", ".join(f"`{name}`" for name in edge.overruled[:10])
            found.append(
                f"edge `{edge.name}` sees {len(edge.overruled)} regions up that most edges say are down ({regions}), and "
                "goes by its own probes for them"
            )
    return found


async def forget(database: Database, vantages: Vantages, name: str, *, by: Actor) -> None:
    """Forget an edge that is gone for good. Should it report again, it is known again.

    Raises:
        NotFound: it is not known.
        Conflict: it is live.
    """
    known = {edge.name: edge for edge in await list_all(database, vantages.all(), datetime.now(UTC))}
    edge = known.get(name)
    if edge is None:
        raise NotFound(f"there is no edge `{name}`")
    if edge.live:
        raise Conflict(f"edge `{name}` is live: stop it first, or revoke its token")
    async with database.transaction() as transaction:
        await transaction.edges.forget(name)
        await transaction.audit.add(by, "edge.forget", f"edge {name}")
    vantages.forget(name)


class Sightings:
    """Writes edges down now and then, for the other control replicas and for the next start.

    Args:
        database: where.
        vantages: who was heard of.
    """

    def __init__(self, database: Database, vantages: Vantages) -> None:
        self._database = database
        self._vantages = vantages
        self._written: dict[str, datetime] = {}

    async def run(self) -> None:
        """Write until cancelled; what cannot be written waits for the next time."""
        while True:
            await asyncio.sleep(RECORD_EVERY)
            with suppress(StorageUnavailable):
                await self._write()

    async def _write(self) -> None:
        known = {edge.name: edge for edge in sorted(self._vantages.all(), key=lambda edge: edge.seen_at)}
        fresh = [edge for edge in known.values() if self._written.get(edge.name) != edge.seen_at]
        async with self._database.transaction() as transaction:
            await transaction.edges.record(_sighting(edge) for edge in fresh)
        self._written = {name: edge.seen_at for name, edge in known.items()}


def _sighting(edge: LiveEdge) -> EdgeSighting:
    return EdgeSighting(
        name=edge.name,
        version=edge.report.version,
        address=edge.address,
        revision_applied=edge.report.revision,
        epoch_applied=edge.report.epoch,
        country=edge.report.place.country,
        operator_country=edge.report.place.operator_country,
        seen_at=edge.seen_at,
        handoff_keys=edge.report.handoff_keys,
        handoff_token=edge.token_id,
    )


MOST_ENDING = 20
"""Certificates that are warned of one by one."""
_MOST_RATES = 200
"""Rates of DNS that are told of an edge: the highest."""
_DAY = 86_400.0


def told_by(
    name: str, reporting: Iterable[LiveEdge], rates: Callable[[str], Mapping[str, float]], now: datetime
) -> dict[str, Any]:
    """What the live edges of a name tell of their DNS (added up) and of certificates (of the first that tells), as the API answers it.

    Args:
        name: theirs.
        reporting: those that were heard of (`Vantages.all`).
        rates: what DNS does, per second, by an edge's source.
        now: the time of day.
    """
    live = [one for one in reporting if one.name == name and now - one.seen_at <= timedelta(seconds=MAX_AGE)]
    telling = [one for one in live if one.report.dns is not None]
    added: Counter[str] = Counter()
    for source in {one.source for one in telling}:
        added.update(rates(source))
    limits = next((one.report.dns_limits for one in telling if one.report.dns_limits is not None), None)
    shown = next((one.report.certificates for one in telling if one.report.certificates is not None), None)
    return {
        "dns": _dns(added) if telling else None,
        "dns_limits": limits,
        "certificates": None if shown is None else [_certificate(one, now) for one in _by_end(shown)],
    }


def _dns(rates: Mapping[str, float]) -> dict[str, Any]:
    """The rates by what they are of, the highest first."""
    found: dict[str, Any] = {"answered": [], "limited": {}, "dropped": {}}
    for part, rate in nlargest(_MOST_RATES, rates.items(), key=itemgetter(1)):
        kind, *words = part.split("\t")
        if kind == "answered":
            type_, rcode, transport = words
            found[kind].append({"type": type_, "rcode": rcode, "transport": transport, "per_second": rate})
        else:
            found[kind][words[0]] = rate
    return found


def _by_end(shown: Iterable[ShownCertificate]) -> list[ShownCertificate]:
    return sorted(shown, key=lambda one: (one.certificate.not_after, one.region, one.url))


def _certificate(shown: ShownCertificate, now: datetime) -> dict[str, Any]:
    one, left = shown.certificate, shown.certificate.not_after - now.timestamp()
    return {
        "region": shown.region,
        "endpoint": shown.url,
        "sha256": one.sha256,
        "subject": one.subject,
        "issuer": one.issuer,
        "names": one.names,
        "not_before": _moment(one.not_before),
        "not_after": _moment(one.not_after),
        "days_left": round(left / _DAY, 2),
        "ends_soon": left < ENDS_SOON,
    }


def _moment(at: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at)


def ending_certificates(live: Iterable[LiveEdge], now: float) -> list[str]:
    """The certificates that edges meet and that end soon or have ended, each in a sentence: the first to end first."""
    seen: dict[ShownCertificate, list[str]] = defaultdict(list)
    for edge in live:
        for one in edge.report.certificates or ():
            if one.certificate.not_after - now < ENDS_SOON:
                seen[one].append(edge.name)
    found = []
    for one in _by_end(seen)[:MOST_ENDING]:
        left = one.certificate.not_after - now
        ends = f"{'ends' if left > 0 else 'ended'} on {_moment(one.certificate.not_after):%Y-%m-%d %H:%M} UTC"
        days = f", in {left / _DAY:.0f} days" if left > 0 else ""
        whom = some(sorted({f"`{name}`" for name in seen[one]}), "edges")
        found.append(
            f"region {one.region}: the certificate of {one.url} {ends}{days}, as edge {whom} sees it: renew it, or probes "
            "fail and the region is down"
        )
    if len(seen) > MOST_ENDING:
        found.append(f"{len(seen) - MOST_ENDING} more certificates end soon; see `gtm edges show EDGE`")
    return found

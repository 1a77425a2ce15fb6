"""What edges tell of their DNS and of the certificates that they meet, as people read it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from operator import itemgetter
from typing import Any

from gtm.control.lead.vantages import MAX_AGE, LiveEdge
from gtm.core.model.certificates import ENDS_SOON, ShownCertificate
from gtm.core.model.references import some

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

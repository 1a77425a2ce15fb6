"""A whole policy, and its rules: residency and spillover, jurisdictions, tenants and data classes.

Everything is a frozen dataclass or an enum. What a policy *means* is worked out by `gtm.core.policy.compile`; limits of
single fields (ranges, lengths, patterns) are held by `gtm.documents`, the one place where outside documents become
these values.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gtm.core.model.regions import Region
from gtm.core.model.services import Service, Zone


class RuleMode(StrEnum):
    """Whether a residency rule binds."""

    ENFORCE = "enforce"
    MONITOR = "monitor"
    """Only recorded: the answer names the rule and what it would have excluded."""


class OnUnknownLocation(StrEnum):
    """What a residency rule about client countries makes of a client whose country is not known well enough."""

    MATCH = "match"
    """The client may be in any country, so the rule concerns it."""
    IGNORE = "ignore"
    """The rule concerns only clients known to be in its countries."""


class OnAnonymous(StrEnum):
    """What a residency rule about client countries makes of a client behind a VPN, a proxy, Tor or a hosting provider.

    The address says where that is, not where the client is.
    """

    MATCH = "match"
    """The client may be in any country, so the rule concerns it."""
    TRUST = "trust"
    """The client counts as being where its address is."""


class EdgeScope(StrEnum):
    """Which edges may handle the requests that a residency rule concerns."""

    ANYWHERE = "anywhere"
    IN_FENCE = "in_fence"
    """Those that stand in the rule's allowed places (`gtm.core.policy.edges`)."""


class OnDoubtfulLocation(StrEnum):
    """What a residency rule about client countries makes of a client whose location measured round trips contradict."""

    MATCH = "match"
    """It counts as one whose country is not known: see `on_unknown_location`."""
    TRUST = "trust"
    """The client counts as being where the location database says."""


@dataclass(frozen=True, slots=True)
class Match:
    """Whom a residency rule concerns. Dimensions are joined by AND; an empty one matches everybody.

    Countries and jurisdictions are one dimension: a client in any of them matches. So are tenants and the jurisdictions
    that tenants are established in. What a request does not say (location, tenant, data class), and what is not known of
    a tenant's establishment, counts as a match: the most restrictive reading wins.
    """

    services: tuple[str, ...] = ()
    client_countries: tuple[str, ...] = ()
    client_jurisdictions: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    data_classes: tuple[str, ...] = ()
    tenant_jurisdictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """A set of regions, named directly, by jurisdiction (a country code is one too), or by their operators'.

    Where the places `jurisdictions` and `regions` and the operators are both named, `allow` holds the regions that
    satisfy both, and `deny` those that satisfy either. A region of unknown operator is in no `allow` by operator, and
    in every `deny` by operator: the most restrictive reading.
    """

    jurisdictions: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    operator_jurisdictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResidencyRule:
    """Where matching requests may be served: inside `allow` (everywhere, if empty) and not inside `deny`.

    A rule about client countries also concerns clients that may be in them: those whose country is unknown, in doubt
    (`on_doubtful_location`) or not known to within `max_accuracy_km` (`on_unknown_location`), and those behind an
    anonymising network (`on_anonymous`). None of these lets go of a client that is located in the rule's countries.

    `edges` says whether the rule binds the edges that handle such requests too.
    """

    name: str
    match: Match = Match()
    allow: Places = Places()
    deny: Places = Places()
    mode: RuleMode = RuleMode.ENFORCE
    edges: EdgeScope = EdgeScope.ANYWHERE
    on_unknown_location: OnUnknownLocation = OnUnknownLocation.MATCH
    on_anonymous: OnAnonymous = OnAnonymous.MATCH
    on_doubtful_location: OnDoubtfulLocation = OnDoubtfulLocation.MATCH
    max_accuracy_km: float | None = None
    legal_basis: str = ""
    effective_from: datetime | None = None
    effective_until: datetime | None = None
    max_policy_age: float | None = None
    """Seconds without a word from control after which an edge refuses what the rule concerns; None: it never does."""
    acknowledge_empty_fence: bool = False
    """The operator knows that this rule leaves some service without any region, and means it."""


@dataclass(frozen=True, slots=True)
class SpilloverRule:
    """How much of a region's demand may be served elsewhere (share 0–1, requests/s, added round trip in ms)."""

    name: str
    from_region: str
    to_regions: tuple[str, ...]
    max_share: float | None = None
    max_requests_per_second: float | None = None
    max_added_latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """The time for which a jurisdiction has a member: from one moment (always, if None) until before another."""

    member: str
    effective_from: datetime | None = None
    effective_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Jurisdiction:
    """A body of law and where it binds. `members` are ISO 3166-1 alpha-2 codes or other jurisdictions' names.

    A member without a term in `terms` is one at all times.
    """

    name: str
    display_name: str = ""
    members: tuple[str, ...] = ()
    source: str = ""
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Tenant:
    """A customer whose requests rules may single out. Requests that name any other are rejected.

    When a priority tier does not fit, its tenants share what there is in proportion to `weight`. `country` is where it is
    established (ISO 3166-1 alpha-2): some laws follow a controller's or processor's establishment wherever the data is
    (GDPR Art. 3(1)). None: unknown.
    """

    name: str
    display_name: str = ""
    weight: float = 1.0
    country: str | None = None


@dataclass(frozen=True, slots=True)
class DataClass:
    """A kind of data that rules may single out. Requests that name any other are rejected."""

    name: str
    display_name: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything operators write, as one value. Its compiled form is `gtm.core.policy.snapshot.Snapshot`."""

    regions: tuple[Region, ...] = ()
    zones: tuple[Zone, ...] = ()
    services: tuple[Service, ...] = ()
    residency_rules: tuple[ResidencyRule, ...] = ()
    spillover_rules: tuple[SpilloverRule, ...] = ()
    jurisdictions: tuple[Jurisdiction, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    data_classes: tuple[DataClass, ...] = ()

"""What edges and balancers report to control, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.core.health.history import Probed
from gtm.core.latency import Delta, Witness
from gtm.core.model.certificates import ShownCertificate
from gtm.core.model.state import EndpointHealth, Plan
from gtm.core.policy.edges import NOWHERE, EdgePlace
from gtm.core.quota.leases import LeaseGrant, LeaseUse


@dataclass(frozen=True, slots=True)
class DnsLimits:
    """What an edge's DNS grants a client prefix (/24 or /56) each second and process (`gtm.settings.DnsSettings`).

    `replies` over UDP, 0: any number; `excess_bytes` beyond twice the queries'. Of what is limited each `slip`-th reply is sent,
    without records; 0: none. `exempt` counts the networks that are not limited.
    """

    replies: int
    excess_bytes: int
    slip: int
    exempt: int = 0


@dataclass(frozen=True, slots=True)
class EdgeReport:
    """Edge → control, `POST /v1/edges/{name}/report`: what this vantage sees, what it answers from, and what it was asked.

    `health` maps region name → endpoint URL → health. Revision and epoch are those of the View in use. `demand` counts
    decisions by row (`gtm.telemetry.decision_key`, without its first part) over the last `seconds`. `leases` is what was
    done with the quotas' leases, `latency` and `witnesses` what was learned of round trips and of claimed
    locations since the last report, `plan` the plan it follows, if control asked for it. `overruled` names the regions for which it goes by its own probes although control
    says otherwise (`gtm.core.health.verdicts.overruled`). `place` is where the edge stands. `handoff_keys` are the public keys that
    it signs handoffs with, or will, or did (`gtm.core.handoff.keys.key_text`). `corrections` counts requests that it moved by
    free slots over the last `seconds`, by the region that the plan chose (empty: the plan refused them) and the one that took them, a
    tab between.

    What edges of before do not tell is None: `addresses` maps family (`ipv4`, `ipv6`) → region name → address and URL → health
    (`gtm.core.health.addresses`); `dns` counts over the last `seconds` what DNS did (`gtm.telemetry.dns_part`), `dns_limits`
    is how it limits abuse; `kept` is the revision on the edge's disk, by which it would answer after a restart without control (0: none); `probed` has the outcomes of probes since the last report, `certificates` what endpoints showed to the last
    one, now and then: None is no news there.
    """

    version: str
    revision: int
    epoch: int
    health: dict[str, dict[str, EndpointHealth]]
    demand: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    leases: LeaseUse | None = None
    latency: tuple[Delta, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    plan: Plan | None = None
    overruled: tuple[str, ...] = ()
    place: EdgePlace = NOWHERE
    handoff_keys: tuple[str, ...] = ()
    corrections: dict[str, float] = field(default_factory=dict)
    dns: dict[str, float] | None = None
    dns_limits: DnsLimits | None = None
    probed: tuple[Probed, ...] | None = None
    certificates: tuple[ShownCertificate, ...] | None = None
    kept: int | None = None
    addresses: dict[str, dict[str, dict[str, EndpointHealth]]] | None = None


@dataclass(frozen=True, slots=True)
class EdgeReply:
    """Control → edge, in answer to its report: the quotas' leases it holds from now on.

    `wants_plan`: control has just started, and asks for the plan that the edge follows with its next report. `notice` is
    for people, to be said in the edge's log.
    """

    leases: LeaseGrant | None = None
    wants_plan: bool = False
    notice: str = ""


MAX_PUSHES = 1000
"""Kinds of pushes that control takes in one report."""


@dataclass(frozen=True, slots=True)
class BalancerReport:
    """Balancer → control, `POST /v1/balancers/{name}/report`: what was done with the quotas' leases, and its public keys.

    `handoff_keys` are those that it signs pushes with, or will, or did (`gtm.core.handoff.keys.key_text`). `region` is its own, `tiers`
    has requests that run and that wait there, by tier. `latency` and `witnesses` are what was learned of round trips to its clients
    and of their claimed locations since the last report, of its own region alone; who speaks is the token, whatever a witness says.
    `address` (`192.0.2.1:8088`) is where other balancers of its region reach it; empty: they do not.
    `pushes` counts requests that found no slot over the last `seconds`: by service, the region that took them (empty: none) and why,
    tabs between; and, without a region, those that it served because another region had no slot (`came`).
    """

    leases: LeaseUse | None = None
    handoff_keys: tuple[str, ...] = ()
    region: str = ""
    version: str = ""
    tiers: dict[str, tuple[int, int]] = field(default_factory=dict)
    latency: tuple[Delta, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    address: str = ""
    pushes: dict[str, float] = field(default_factory=dict)
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class BalancerReply:
    """Control → balancer, in answer to its report: the quotas' leases it holds from now on. `notice` is for people, to be said in its log."""

    leases: LeaseGrant | None = None
    notice: str = ""

"""The state at a glance, and the health of every region."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gtm import __version__
from gtm.api.context import Ctx, Viewer, reply
from gtm.api.query import OnlyRegion, TypedResponse, strict_router
from gtm.api.schemas.base import picked
from gtm.api.schemas.state import EndpointHealthSchema, HealthView, StatusView
from gtm.control.lead import edges
from gtm.control.lead.vantages import Judgement
from gtm.control.policy.changes import deferral_warnings
from gtm.control.warnings import warnings
from gtm.core.health.addresses import (
    NO_ADDRESSES,
    Addresses,
    address_key,
    address_of,
    families_of,
    judged_addresses,
)
from gtm.core.health.verdicts import HealthTable
from gtm.core.model.regions import Region
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus

router = strict_router(prefix="/v1")


@router.get("/status", tags=["edges"])
async def get_status(ctx: Ctx, _: Viewer) -> TypedResponse[StatusView]:
    """Revision in force, and which edges have it.

    Answered from memory, also while the database is down.
    """
    replica, now = ctx.replica, datetime.now(UTC)
    await replica.watch.ping()
    known = await edges.list_all(ctx.database, replica.edges(), now)
    revision = ctx.present.revision
    return reply(
        {
            "version": __version__,
            "epoch": ctx.present.state.epoch,
            "control": replica.election.standing,
            "active": replica.election.active,
            "standbys": replica.election.standbys,
            "database": ctx.present.database,
            "sync": edges.sync_of(known, revision, ctx.present.lost),
            "warnings": [
                *warnings(replica, now.timestamp(), ctx.settings.fence_approvals),
                *edges.warnings(known, revision),
                *(await deferral_warnings(ctx.database)),
            ],
        }
    )


@router.get("/health", tags=["health"])
async def get_health(ctx: Ctx, _: Viewer, region: OnlyRegion = None) -> TypedResponse[HealthView]:
    """Health of every region and endpoint, by vantage.

    As the edges vote; answered from memory, also while the database is down.
    """
    present, vantages = ctx.present, ctx.leading().reports.vantages
    seen: dict[str, HealthTable] = {}
    addresses: dict[str, Addresses] = {}
    for edge in vantages.live():
        name = edge.name if edge.name not in seen else f"{edge.name}/{edge.instance}"
        seen[name], addresses[name] = edge.report.health, edge.report.addresses or NO_ADDRESSES
    judged = vantages.judgement
    found = [
        _region(one, judged, seen, addresses) for one in present.policy.regions if region in (None, one.name)
    ]
    return reply({"epoch": present.state.epoch, "regions": found})


def _region(
    region: Region,
    judged: Judgement,
    seen: Mapping[str, HealthTable],
    reached: Mapping[str, Addresses],
) -> dict[str, Any]:
    """A region's health: what all vantages say together, and what each has `seen` of endpoints and `reached` of addresses."""
    agreed = judged.votes.get(region.name, {})
    endpoints = []
    for endpoint in region.endpoints:
        item = agreed.get(endpoint.url, UNKNOWN_HEALTH)
        vantages = {
            name: picked(EndpointHealthSchema, table[region.name][endpoint.url])
            for name, table in seen.items()
            if endpoint.url in table.get(region.name, {})
        }
        found = [
            _address(
                address_key(endpoint.url, address),
                judged.address_votes.get(family, {}).get(region.name, {}),
                {name: told.get(family, {}).get(region.name, {}) for name, told in reached.items()},
            )
            for family, one, address in judged_addresses(region)
            if one is endpoint
        ]
        endpoints.append(
            {
                "url": endpoint.url,
                **picked(EndpointHealthSchema, item),
                "vantages": vantages,
                "addresses": found,
            }
        )
    return {
        "region": region.name,
        "admin_state": region.admin_state,
        "status": _best([agreed.get(item.url, UNKNOWN_HEALTH).status for item in region.endpoints]),
        "disputed": region.name in judged.alarm.disputed,
        "families": families_of(region, agreed, judged.address_votes),
        "endpoints": endpoints,
    }


def _address(
    key: str, agreed: Mapping[str, EndpointHealth], reached: Mapping[str, Mapping[str, EndpointHealth]]
) -> dict[str, Any]:
    vantages = {
        name: picked(EndpointHealthSchema, known[key]) for name, known in reached.items() if key in known
    }
    return {
        "address": address_of(key),
        **picked(EndpointHealthSchema, agreed.get(key, UNKNOWN_HEALTH)),
        "vantages": vantages,
    }


def _best(statuses: list[HealthStatus]) -> HealthStatus:
    """Up if any endpoint is; down if one is known to be; else unknown."""
    for status_ in (HealthStatus.UP, HealthStatus.DOWN):
        if status_ in statuses:
            return status_
    return HealthStatus.UNKNOWN

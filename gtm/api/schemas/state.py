"""Answers about what runs: tokens, edges, health, load, the state at a glance."""

from __future__ import annotations

from pydantic import Field

from gtm.api.schemas.base import Schema, SyncSchema
from gtm.control.lead.election import Standing
from gtm.core.capacity.load import Freshness, Load
from gtm.core.capacity.processing import TimeSource
from gtm.core.model.regions import AdminState
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.storage.errors import STATES
from gtm.storage.tokens import Token


class TokenView(Schema, of=Token):
    """A token, without its text."""


class TokenCreated(TokenView):
    """A new token."""

    token: str | None
    """The token's text. It is shown this once and stored nowhere. Null: whoever asked has drawn it."""


class EndpointHealthSchema(Schema, of=EndpointHealth, without=("recovered", "tied")):
    """What a vantage, or all together, say of an endpoint."""


class AddressView(EndpointHealthSchema):
    """An address of an endpoint that is probed by itself: one that is down is left out of DNS answers."""

    address: str
    vantages: dict[str, EndpointHealthSchema]
    """By edge: what each sees; unknown: it was never up from there."""


class EndpointView(EndpointHealthSchema):
    """An endpoint's health."""

    url: str
    vantages: dict[str, EndpointHealthSchema]
    """The health that each edge sees, by the edge's name."""
    addresses: list[AddressView]


class FamilyHealth(Schema):
    """Whether clients of a family are answered with the region: down, if it is up and none of its addresses of that family is left."""

    ipv4: HealthStatus
    ipv6: HealthStatus
    """Unknown: the region has no address of the family, or nothing is known of the region."""


class RegionHealthSchema(Schema):
    """A region's health: up if any endpoint is."""

    region: str
    admin_state: str
    status: HealthStatus
    disputed: bool
    """Its verdict is withdrawn while a health alarm is on: edges go by their own probes."""
    families: FamilyHealth
    """By the addresses that DNS gives out."""
    endpoints: list[EndpointView]


class HealthView(Schema):
    """Health as the edges vote."""

    epoch: int
    regions: list[RegionHealthSchema]


class LoadSchema(Schema, of=Load, without=("region", "service", "at")):
    """What all reporters that count say together; null: none of them says it."""


class RateBoundSchema(Schema):
    """A bound as the policy declares it, and what of it new clients may use; null: no bound is known."""

    declared: float | None
    usable: float | None


class SlotBoundSchema(RateBoundSchema):
    """A bound of requests at once, which reports may set, too."""

    reported: float | None


class CapacityBase(Schema):
    """Load and usable capacity."""

    freshness: Freshness
    age: float | None
    """Seconds since the newest report; null: there was none, or none of this service alone."""
    load: LoadSchema | None
    slots: SlotBoundSchema
    requests_per_second: RateBoundSchema
    backlog: float
    """Requests that wait for a slot."""
    service_time_ms: float | None
    service_time_source: TimeSource
    processing_ms: float
    """Wait, and service time beyond that of the fastest region, as rankings use it."""


class ServiceCapacity(CapacityBase):
    """Load and usable capacity of one service in a region."""

    service: str


class RegionCapacityView(CapacityBase):
    """Load and usable capacity of a region as a whole, and of its services."""

    region: str
    admin_state: AdminState
    """Only an active region has capacity for new clients."""
    health: float
    """The share of its endpoints that are up."""
    slow_start: float
    """How far, 0 to 1, those that came back have ramped up."""
    reserve: float
    """The share that no plan uses."""
    services: list[ServiceCapacity]


class LoadView(Schema):
    """Load and usable capacity of every region."""

    at: float
    """The time of the figures, in POSIX seconds."""
    regions: list[RegionCapacityView]


class StatusView(Schema):
    """The state of the control tier at a glance."""

    version: str
    epoch: int
    control: Standing
    """active; standby: another one is; adrift: it lost the database while others stood by, and neither plans nor leases."""
    active: str
    """Who is active, if it is another control and known."""
    standbys: int
    """How many control processes stand by for this one."""
    database: str = Field(json_schema_extra={"enum": list(STATES)})
    """up: it takes changes; read_only and busy: it answers and takes none now; unfit: it has to be changed; down: it cannot be reached."""
    sync: SyncSchema
    warnings: list[str]
    """The warnings of the policy in force."""

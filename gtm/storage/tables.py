"""The tables. Alembic compares this module with the migrations (`tests/check_migrations.py`)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)

resource_versions = Sequence("resource_versions", metadata=metadata, data_type=BigInteger)
"""One sequence for all kinds, so that deleting and creating a resource anew never repeats a version."""


def _table(name: str, *parts: Column[Any] | CheckConstraint | Index) -> Table:
    return Table(name, metadata, *parts)


def _name() -> Column[str]:
    # Sorted by code point on every server, as Python sorts: pages and exports have one order everywhere.
    return Column("name", Text(collation="C"), primary_key=True)


_MOMENT = DateTime(timezone=True)


def _timestamp(name: str, *, nullable: bool = False, now: bool = False) -> Column[object]:
    return Column(name, _MOMENT, nullable=nullable, server_default=func.now() if now else None)


def _columns(kind: Any, *names: str, nullable: bool = False) -> list[Column[Any]]:
    """Columns of one type that have no default of their own."""
    return [Column(name, kind, nullable=nullable) for name in names]


def _keys(*names: str) -> list[Column[str]]:
    """Texts that make a primary key."""
    return [Column(name, Text(collation="C"), primary_key=True) for name in names]


def _resource_table(name: str, *own: Column[str] | CheckConstraint) -> Table:
    """A table of one kind of policy document (docs/decisions/0003-policy-documents-in-postgres.md)."""
    return _table(
        name,
        _name(),
        Column("version", BigInteger, nullable=False),
        *own,
        Column("spec", JSONB, nullable=False),
        _timestamp("created_at", now=True),
        _timestamp("updated_at", now=True),
        # Beside the document, since none of it is policy: a row's end is the end of all three.
        # Which tool manages it (`gtm.core.model.names.MANAGER_PATTERN`), and since when.
        Column("manager", Text(collation="C"), nullable=True),
        _timestamp("managed_since", nullable=True),
        # The revision that wrote it last; NULL: one before this was kept.
        Column("revision", BigInteger, nullable=True),
        CheckConstraint("(manager IS NULL) = (managed_since IS NULL)", name="manager"),
    )


regions = _resource_table(
    "regions",
    # Apart from the document: operators drain regions by hand, and scripts may want to see it.
    Column("admin_state", Text, nullable=False),
    CheckConstraint("admin_state IN ('active', 'draining', 'disabled')", name="admin_state"),
)
zones = _resource_table("zones")
services = _resource_table("services")
residency_rules = _resource_table("residency_rules")
spillover_rules = _resource_table("spillover_rules")
jurisdictions = _resource_table("jurisdictions")
tenants = _resource_table("tenants")
data_classes = _resource_table("data_classes")

secrets = _table("secrets", _name(), *_columns(LargeBinary, "value"))
"""Keys that control makes for itself, and shows to nobody."""

revisions = _table(
    "revisions",
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _timestamp("created_at", now=True),
    *_columns(Text, "author", "sha256"),
    Column("comment", Text, nullable=False, server_default=text("''")),
    *_columns(JSONB, "document", "summary"),
    CheckConstraint("number > 0", name="number"),
)

tokens = _table(
    "tokens",
    *_keys("id"),
    Column("name", Text(collation="C"), nullable=False),
    *_columns(Text, "role"),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    # `edges`: which edges a token of role `edge` speaks for: a name, or a pattern with `*`; of all others NULL.
    # `regions`: which regions one of role `balancer` or `reporter` may speak of, likewise; of a reporter NULL: any.
    # `names`: at which names one of role `acme` may write challenges, likewise; of all others NULL.
    # `owner`: in whose hands its text is (`gtm.core.model.access.Hands`). NULL: it is from before that was written down.
    *_columns(Text, "edges", "regions", "names", "owner", nullable=True),
    Column("makers", ARRAY(Text), nullable=False, server_default="{}"),
    _timestamp("created_at", now=True),
    _timestamp("expires_at", nullable=True),
    _timestamp("revoked_at", nullable=True),
    CheckConstraint(
        "role IN ('viewer', 'operator', 'fence-admin', 'admin', 'edge', 'reporter', 'balancer', 'acme')",
        name="role",
    ),
    CheckConstraint("octet_length(sha256) = 32", name="sha256"),
    CheckConstraint("(role = 'edge') = (edges IS NOT NULL)", name="edges"),
    CheckConstraint("(role = 'acme') = (names IS NOT NULL)", name="names"),
    CheckConstraint("role = 'reporter' OR (role = 'balancer') = (regions IS NOT NULL)", name="regions"),
    Index("ix_tokens_name", "name"),
    Index("uq_tokens_live_name", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
)
"""Tokens, those that have ended included. One that is replaced has the moment of its end in `revoked_at` beforehand."""

forks = _table(
    "forks",
    Column("after", BigInteger, primary_key=True, autoincrement=False),
    *_columns(BigInteger, "up_to"),
    _timestamp("noted_at", now=True),
    _timestamp("accepted_at", nullable=True),
    CheckConstraint("up_to > after", name="up_to"),
)
"""Revisions that edges or balancers hold and this database has lost; new ones are numbered beyond."""

gone = _table(
    "gone",
    # `region`: of an address or a name of an endpoint, which region's; empty of others.
    *_keys("kind", "name", "region"),
    *_columns(BigInteger, "revision"),
    *_columns(Text, "country", "operator_country", nullable=True),
    CheckConstraint("kind IN ('name', 'service', 'target')", name="kind"),
)
"""What the policy had and has no more; `revision` was the last that had it."""

deferred_deletions = _table(
    "deferred_deletions",
    *_keys("kind", "name"),
    *_columns(Text, "manager", nullable=True),
    *_columns(Text, "asked_by", "why"),
    *_columns(_MOMENT, "asked_at"),
    *_columns(Boolean, "refused"),
)
"""Resources that are to be deleted as soon as nothing keeps them; `why` says what does, `refused` whether that is a safety rule."""

fence_approvals = _table(
    "fence_approvals",
    *_keys("sha256", "approver"),
    *_columns(Text, "reason"),
    # What it was given with, and ends with: `token ID` or `session ID`; and in whose hands that was.
    Column("credential", Text, nullable=False, server_default=""),
    *_columns(Text, "owner", nullable=True),
    Column("makers", ARRAY(Text), nullable=False, server_default="{}"),
    _timestamp("created_at", now=True),
    *_columns(_MOMENT, "expires_at"),
    CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
)
"""Consents to changes that open a fence (`gtm.control.policy.approvals`)."""

sessions = _table(
    "sessions",
    *_keys("id"),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    *_columns(Text, "name", "role", "token", "agent"),
    *_columns(_MOMENT, "created_at", "seen_at", "expires_at"),
    CheckConstraint("role IN ('viewer', 'operator', 'fence-admin', 'admin')", name="role"),
    CheckConstraint("octet_length(sha256) = 32", name="sha256"),
    Index("ix_sessions_name", "name"),
)
"""People who are signed in at the dashboard (`gtm.control.live.sessions`)."""

accounts = _table("accounts", *_keys("account", "name"), _timestamp("first_seen", now=True))
"""Accounts at identity providers (issuer and subject), and the names by which each has come: never forgotten, since tokens are owned by names."""

audit = _table(
    "audit",
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _timestamp("at", now=True),
    *_columns(Text, "who", "via", "target", "reason", "detail"),
    *_columns(Text, "role", nullable=True),
    Column("action", Text(collation="C"), nullable=False),
    *_columns(BigInteger, "revision", nullable=True),
    *_columns(Boolean, "forced"),
    *_columns(Integer, "count"),
    CheckConstraint("via IN ('api', 'dashboard', 'direct', 'control')", name="via"),
    CheckConstraint("count > 0", name="count"),
    Index("ix_audit_at", "at"),
    # All pieces of three letters (migration 0019), by which parts of names are found.
    Index("ix_audit_who_pieces", text("audit_pieces(who)"), postgresql_using="gin"),
    Index("ix_audit_target_pieces", text("audit_pieces(target)"), postgresql_using="gin"),
)
"""The audit log (`gtm.storage.history.audit.Entry`)."""

edges = _table(
    "edges",
    _name(),
    *_columns(Text, "version", "address"),
    *_columns(_MOMENT, "first_seen", "last_seen"),
    *_columns(BigInteger, "revision_applied", "epoch_applied"),
    *_columns(Text, "country", "operator_country", nullable=True),
    Column("handoff_keys", ARRAY(Text), nullable=False, server_default="{}"),
    # The id of the token that they were told with.
    Column("handoff_token", Text, nullable=False, server_default=""),
    Index("ix_edges_last_seen", "last_seen"),
)

demand_rows = _table(
    "demand_rows",
    Column("id", Integer, Identity(always=True), primary_key=True),
    Column("row", Text(collation="C"), nullable=False, unique=True),
    *_columns(_MOMENT, "last_seen"),
    Index("ix_demand_rows_last_seen", "last_seen"),
)
"""What demand is counted by (`gtm.control.lead.demand.Row`), each kept once, however many minutes have it."""

demand_minutes = _table(
    "demand_minutes",
    Column("minute", _MOMENT, primary_key=True),
    *_keys("source"),
    *_columns(Double, "total"),
    # Two arrays and not a line for each count: a week of thousands of rows a minute stays below a gigabyte.
    Column("rows", ARRAY(Integer), nullable=False),
    Column("counts", ARRAY(REAL), nullable=False),
    # That the source watched; a version before this did not say, and counts as all of the minute.
    Column("seconds", Double, nullable=False, server_default="60"),
    CheckConstraint("cardinality(rows) = cardinality(counts)", name="counts"),
    CheckConstraint("seconds > 0", name="seconds"),
)

demand_hours = _table(
    "demand_hours",
    Column("hour", _MOMENT, primary_key=True),
    Column("rows", ARRAY(Integer), nullable=False),
    Column("counts", ARRAY(Double), nullable=False),
    CheckConstraint("cardinality(rows) = cardinality(counts)", name="counts"),
)
"""`demand_minutes` of all sources added up; an hour without a row here is read minute by minute."""

demand_peaks = _table(
    "demand_peaks",
    *_keys("token"),
    Column("hour", _MOMENT, primary_key=True),
    # Requests per second in the busiest minute of the hour.
    *_columns(Double, "rate"),
)
"""How much the edges of a token asked for (`gtm.core.demand.belief`)."""

plan_minutes = _table(
    "plan_minutes",
    Column("minute", _MOMENT, primary_key=True),
    *_keys("region"),
    *_columns(Integer, "samples"),
    *_columns(Double, "demand", "planned", "away", "refused", "price_ms", "exhausted"),
    *_columns(Double, "use", nullable=True),
    CheckConstraint("samples > 0", name="samples"),
)
"""The planner's decisions, minute by minute (`gtm.core.plan.history.RegionMinute`)."""

plan_sums = _table(
    "plan_sums",
    # Minutes that a step is long (`gtm.storage.history.plans.SPANS`).
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("start", _MOMENT, primary_key=True),
    *_keys("region"),
    *_columns(Integer, "minutes", "use_minutes"),
    *_columns(Double, "demand", "planned", "away", "refused", "price_ms", "most_price_ms", "exhausted"),
    *_columns(Double, "use", "most_use", nullable=True),
    CheckConstraint("minutes > 0", name="minutes"),
)
"""`plan_minutes` added up by step; `use_minutes` are those that know their use."""

request_times = _table(
    "request_times",
    # Minutes that a step is long: 1 as it was told, others are sums (`gtm.storage.history.requests.SPANS`).
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("start", _MOMENT, primary_key=True),
    # `measure`: `first_byte` or `end`. `source`: the control process that heard it; empty: a sum over all.
    *_keys("region", "service", "model", "measure", "source"),
    # Places in `gtm.core.capacity.durations.BOUNDS`, and how many requests are there.
    Column("buckets", ARRAY(SmallInteger), nullable=False),
    Column("counts", ARRAY(BigInteger), nullable=False),
    CheckConstraint("cardinality(buckets) = cardinality(counts)", name="counts"),
)
"""What requests took at regions' model servers, as their balancers told it."""

request_pushes = _table(
    "request_pushes",
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("start", _MOMENT, primary_key=True),
    *_keys("region", "service", "peer", "source"),
    *_columns(Double, "requests"),
)
"""Requests that balancers of a region handed to a peer region, by service; `span` and `source` as above."""

latency_sums = _table(
    "latency_sums",
    # `author`: the id of the token whose edges say so; empty: from before this was kept.
    *_keys("level", "key", "region", "author"),
    *_columns(Double, "weight", "mean", "spread"),
    *_columns(_MOMENT, "updated_at"),
    # One bit in 63 for each source, by hash (`gtm.core.latency.samples.source_bit`).
    *_columns(BigInteger, "sources"),
)
"""What was measured of round trips (`gtm.core.latency.aggregates.Sum`)."""

latency_votes = _table(
    "latency_votes",
    # `edge`: the id of the token whose edges or balancers say so.
    *_keys("network", "claim", "region", "reporter", "edge"),
    *_columns(Double, "against", "fits", "ms"),
    *_columns(_MOMENT, "updated_at"),
)
"""Who disputes where a network is said to be (`gtm.core.latency.doubt.Vote`)."""

dnssec_zones = _table(
    "dnssec_zones",
    _name(),
    # Grows with every change of any zone's keys.
    Column("version", BigInteger, nullable=False, unique=True),
    *_columns(_MOMENT, "signed_at"),
    _timestamp("paused_at", nullable=True),
    *_columns(Boolean, "withdrawing"),
    *_columns(JSONB, "sets"),
)
"""Zones that have DNSSEC keys, and the sets their key-signing keys signed (`gtm.core.signing.keys.SignedSet`)."""

dnssec_keys = _table(
    "dnssec_keys",
    *_keys("id"),
    Column(
        "zone",
        Text(collation="C"),
        ForeignKey("dnssec_zones.name", name="fk_dnssec_keys_zone", ondelete="CASCADE"),
        nullable=False,
    ),
    *_columns(Text, "role", "state"),
    *_columns(_MOMENT, "created_at", "since"),
    *_columns(Boolean, "urgent"),
    # `sealed`: AES-256-GCM under the key of the key file, never in the clear.
    *_columns(LargeBinary, "dnskey", "sealed"),
    CheckConstraint("role IN ('ksk', 'zsk')", name="role"),
    CheckConstraint("state IN ('published', 'ready', 'active', 'retired')", name="state"),
    Index("ix_dnssec_keys_zone", "zone"),
)
"""Keys of zones (`gtm.core.signing.rollover.Key`)."""

health_changes = _table(
    "health_changes",
    # When control heard of it, in µs of POSIX time: what one control process wrote has each number once.
    Column("number", BigInteger, primary_key=True),
    # `vantage`: empty: all together.
    *_keys("region", "url", "vantage"),
    *_columns(Text, "before", "after", "detail"),
    *_columns(Integer, "status", nullable=True),
    *_columns(Double, "ms", "edge_at", nullable=True),
    Index("ix_health_changes_region", "region", "number"),
)
"""Verdicts that changed (`gtm.core.health.history.VerdictChange`)."""

health_steps = _table(
    "health_steps",
    *_keys("region"),
    Column("start", _MOMENT, primary_key=True),
    *_keys("source"),
    # All series of the region in one value, and not a line for each: 100 regions seen by 20 edges are 1,200 lines an hour, not 72,000.
    *_columns(JSONB, "series"),
    Index("ix_health_steps_start", "start"),
)
"""What probes said of a region in five minutes (`gtm.core.health.history.HistoryStep`), as one control process heard it."""

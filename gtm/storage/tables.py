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


def _timestamp(name: str, *, nullable: bool = False, now: bool = False) -> Column[object]:
    return Column(
        name, DateTime(timezone=True), nullable=nullable, server_default=func.now() if now else None
    )


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

secrets = _table(
    "secrets",
    _name(),
    Column("value", LargeBinary, nullable=False),
)
"""Keys that control makes for itself, and shows to nobody."""

revisions = _table(
    "revisions",
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _timestamp("created_at", now=True),
    Column("author", Text, nullable=False),
    Column("comment", Text, nullable=False, server_default=text("''")),
    Column("document", JSONB, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("summary", JSONB, nullable=False),
    CheckConstraint("number > 0", name="number"),
)

tokens = _table(
    "tokens",
    Column("id", Text(collation="C"), primary_key=True),
    Column("name", Text(collation="C"), nullable=False),
    Column("role", Text, nullable=False),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    # Which edges a token of role `edge` speaks for: a name, or a pattern with `*`; of all others NULL.
    Column("edges", Text, nullable=True),
    # Which regions a token of role `balancer` or `reporter` may speak of: a name, or a pattern with `*`; of a reporter NULL: any.
    Column("regions", Text, nullable=True),
    # At which names a token of role `acme` may write challenges: a name, or a pattern with `*`; of all others NULL.
    Column("names", Text, nullable=True),
    # In whose hands its text is (`gtm.core.model.access.Hands`). NULL: it is from before that was written down.
    Column("owner", Text, nullable=True),
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
    CheckConstraint(
        "role = 'reporter' OR (role = 'balancer') = (regions IS NOT NULL)",
        name="regions",
    ),
    Index("ix_tokens_name", "name"),
    Index("uq_tokens_live_name", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
)
"""Tokens, those that have ended included. One that is replaced has the moment of its end in `revoked_at` beforehand."""

forks = _table(
    "forks",
    Column("after", BigInteger, primary_key=True, autoincrement=False),
    Column("up_to", BigInteger, nullable=False),
    _timestamp("noted_at", now=True),
    _timestamp("accepted_at", nullable=True),
    CheckConstraint("up_to > after", name="up_to"),
)
"""Revisions that edges or balancers hold and this database has lost; new ones are numbered beyond."""

gone = _table(
    "gone",
    Column("kind", Text(collation="C"), primary_key=True),
    Column("name", Text(collation="C"), primary_key=True),
    # Of an address or a name of an endpoint, which region's; empty of others.
    Column("region", Text(collation="C"), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("country", Text, nullable=True),
    Column("operator_country", Text, nullable=True),
    CheckConstraint("kind IN ('name', 'service', 'target')", name="kind"),
)
"""What the policy had and has no more; `revision` was the last that had it."""

deferred_deletions = _table(
    "deferred_deletions",
    Column("kind", Text(collation="C"), primary_key=True),
    Column("name", Text(collation="C"), primary_key=True),
    Column("manager", Text, nullable=True),
    Column("asked_by", Text, nullable=False),
    _timestamp("asked_at"),
    Column("why", Text, nullable=False),
    Column("refused", Boolean, nullable=False),
)
"""Resources that are to be deleted as soon as nothing keeps them; `why` says what does, `refused` whether that is a safety rule."""

fence_approvals = _table(
    "fence_approvals",
    Column("sha256", Text(collation="C"), primary_key=True),
    Column("approver", Text(collation="C"), primary_key=True),
    Column("reason", Text, nullable=False),
    # What it was given with, and ends with: `token ID` or `session ID`; and in whose hands that was.
    Column("credential", Text, nullable=False, server_default=""),
    Column("owner", Text, nullable=True),
    Column("makers", ARRAY(Text), nullable=False, server_default="{}"),
    _timestamp("created_at", now=True),
    _timestamp("expires_at"),
    CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
)
"""Consents to changes that open a fence (`gtm.control.policy.approvals`)."""

sessions = _table(
    "sessions",
    Column("id", Text(collation="C"), primary_key=True),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("agent", Text, nullable=False),
    _timestamp("created_at"),
    _timestamp("seen_at"),
    _timestamp("expires_at"),
    CheckConstraint("role IN ('viewer', 'operator', 'fence-admin', 'admin')", name="role"),
    CheckConstraint("octet_length(sha256) = 32", name="sha256"),
    Index("ix_sessions_name", "name"),
)
"""People who are signed in at the dashboard (`gtm.control.live.sessions`)."""

accounts = _table(
    "accounts",
    Column("account", Text(collation="C"), primary_key=True),
    Column("name", Text(collation="C"), primary_key=True),
    _timestamp("first_seen", now=True),
)
"""Accounts at identity providers (issuer and subject), and the names by which each has come: never forgotten, since tokens are owned by names."""

audit = _table(
    "audit",
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _timestamp("at", now=True),
    Column("who", Text, nullable=False),
    Column("role", Text, nullable=True),
    Column("via", Text, nullable=False),
    Column("action", Text(collation="C"), nullable=False),
    Column("target", Text, nullable=False),
    Column("revision", BigInteger, nullable=True),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("forced", Boolean, nullable=False),
    Column("count", Integer, nullable=False),
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
    Column("version", Text, nullable=False),
    Column("address", Text, nullable=False),
    _timestamp("first_seen"),
    _timestamp("last_seen"),
    Column("revision_applied", BigInteger, nullable=False),
    Column("epoch_applied", BigInteger, nullable=False),
    Column("country", Text),
    Column("operator_country", Text),
    Column("handoff_keys", ARRAY(Text), nullable=False, server_default="{}"),
    # The id of the token that they were told with.
    Column("handoff_token", Text, nullable=False, server_default=""),
    Index("ix_edges_last_seen", "last_seen"),
)

demand_rows = _table(
    "demand_rows",
    Column("id", Integer, Identity(always=True), primary_key=True),
    Column("row", Text(collation="C"), nullable=False, unique=True),
    _timestamp("last_seen"),
    Index("ix_demand_rows_last_seen", "last_seen"),
)
"""What demand is counted by (`gtm.control.lead.demand.Row`), each kept once, however many minutes have it."""

demand_minutes = _table(
    "demand_minutes",
    Column("minute", DateTime(timezone=True), primary_key=True),
    Column("source", Text(collation="C"), primary_key=True),
    Column("total", Double, nullable=False),
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
    Column("hour", DateTime(timezone=True), primary_key=True),
    Column("rows", ARRAY(Integer), nullable=False),
    Column("counts", ARRAY(Double), nullable=False),
    CheckConstraint("cardinality(rows) = cardinality(counts)", name="counts"),
)
"""`demand_minutes` of all sources added up; an hour without a row here is read minute by minute."""

demand_peaks = _table(
    "demand_peaks",
    Column("token", Text(collation="C"), primary_key=True),
    Column("hour", DateTime(timezone=True), primary_key=True),
    # Requests per second in the busiest minute of the hour.
    Column("rate", Double, nullable=False),
)
"""How much the edges of a token asked for (`gtm.core.demand.belief`)."""

plan_minutes = _table(
    "plan_minutes",
    Column("minute", DateTime(timezone=True), primary_key=True),
    Column("region", Text(collation="C"), primary_key=True),
    Column("samples", Integer, nullable=False),
    Column("demand", Double, nullable=False),
    Column("planned", Double, nullable=False),
    Column("away", Double, nullable=False),
    Column("refused", Double, nullable=False),
    Column("use", Double, nullable=True),
    Column("price_ms", Double, nullable=False),
    Column("exhausted", Double, nullable=False),
    CheckConstraint("samples > 0", name="samples"),
)
"""The planner's decisions, minute by minute (`gtm.core.plan.history.RegionMinute`)."""

plan_sums = _table(
    "plan_sums",
    # Minutes that a step is long (`gtm.storage.history.plans.SPANS`).
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("start", DateTime(timezone=True), primary_key=True),
    Column("region", Text(collation="C"), primary_key=True),
    Column("minutes", Integer, nullable=False),
    Column("demand", Double, nullable=False),
    Column("planned", Double, nullable=False),
    Column("away", Double, nullable=False),
    Column("refused", Double, nullable=False),
    Column("use_minutes", Integer, nullable=False),
    Column("use", Double, nullable=True),
    Column("most_use", Double, nullable=True),
    Column("price_ms", Double, nullable=False),
    Column("most_price_ms", Double, nullable=False),
    Column("exhausted", Double, nullable=False),
    CheckConstraint("minutes > 0", name="minutes"),
)
"""`plan_minutes` added up by step; `use_minutes` are those that know their use."""

latency_sums = _table(
    "latency_sums",
    Column("level", Text(collation="C"), primary_key=True),
    Column("key", Text(collation="C"), primary_key=True),
    Column("region", Text(collation="C"), primary_key=True),
    # The id of the token whose edges say so; empty: from before this was kept.
    Column("author", Text(collation="C"), primary_key=True),
    Column("weight", Double, nullable=False),
    Column("mean", Double, nullable=False),
    Column("spread", Double, nullable=False),
    _timestamp("updated_at"),
    # One bit in 63 for each source, by hash (`gtm.core.latency.samples.source_bit`).
    Column("sources", BigInteger, nullable=False),
)
"""What was measured of round trips (`gtm.core.latency.aggregates.Sum`)."""

latency_votes = _table(
    "latency_votes",
    Column("network", Text(collation="C"), primary_key=True),
    Column("claim", Text(collation="C"), primary_key=True),
    Column("region", Text(collation="C"), primary_key=True),
    Column("reporter", Text(collation="C"), primary_key=True),
    # The id of the token whose edges or balancers say so.
    Column("edge", Text(collation="C"), primary_key=True),
    Column("against", Double, nullable=False),
    Column("fits", Double, nullable=False),
    Column("ms", Double, nullable=False),
    _timestamp("updated_at"),
)
"""Who disputes where a network is said to be (`gtm.core.latency.doubt.Vote`)."""

dnssec_zones = _table(
    "dnssec_zones",
    _name(),
    # Grows with every change of any zone's keys.
    Column("version", BigInteger, nullable=False, unique=True),
    _timestamp("signed_at"),
    _timestamp("paused_at", nullable=True),
    Column("withdrawing", Boolean, nullable=False),
    Column("sets", JSONB, nullable=False),
)
"""Zones that have DNSSEC keys, and the sets their key-signing keys signed (`gtm.core.signing.keys.SignedSet`)."""

dnssec_keys = _table(
    "dnssec_keys",
    Column("id", Text(collation="C"), primary_key=True),
    Column(
        "zone",
        Text(collation="C"),
        ForeignKey("dnssec_zones.name", name="fk_dnssec_keys_zone", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    _timestamp("created_at"),
    _timestamp("since"),
    Column("urgent", Boolean, nullable=False),
    Column("dnskey", LargeBinary, nullable=False),
    # AES-256-GCM under the key of the key file: never in the clear.
    Column("sealed", LargeBinary, nullable=False),
    CheckConstraint("role IN ('ksk', 'zsk')", name="role"),
    CheckConstraint("state IN ('published', 'ready', 'active', 'retired')", name="state"),
    Index("ix_dnssec_keys_zone", "zone"),
)
"""Keys of zones (`gtm.core.signing.rollover.Key`)."""

health_changes = _table(
    "health_changes",
    # When control heard of it, in µs of POSIX time: what one control process wrote has each number once.
    Column("number", BigInteger, primary_key=True),
    Column("region", Text(collation="C"), primary_key=True),
    Column("url", Text(collation="C"), primary_key=True),
    # Empty: all together.
    Column("vantage", Text(collation="C"), primary_key=True),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("status", Integer),
    Column("ms", Double),
    Column("edge_at", Double),
    Index("ix_health_changes_region", "region", "number"),
)
"""Verdicts that changed (`gtm.core.health.history.VerdictChange`)."""

health_steps = _table(
    "health_steps",
    Column("region", Text(collation="C"), primary_key=True),
    Column("start", DateTime(timezone=True), primary_key=True),
    Column("source", Text(collation="C"), primary_key=True),
    # All series of the region in one value, and not a line for each: 100 regions seen by 20 edges are 1,200 lines an hour, not 72,000.
    Column("series", JSONB, nullable=False),
    Index("ix_health_steps_start", "start"),
)
"""What probes said of a region in five minutes (`gtm.core.health.history.HistoryStep`), as one control process heard it."""

"""Policy documents, revisions, tokens and edges."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_DOCUMENTS = (
    "zones",
    "services",
    "residency_rules",
    "spillover_rules",
    "jurisdictions",
    "tenants",
    "data_classes",
)


def _timestamp(name: str, *, nullable: bool = False, now: bool = False) -> sa.Column:
    return sa.Column(
        name,
        sa.DateTime(timezone=True),
        nullable=nullable,
        server_default=sa.func.now() if now else None,
    )


def _create_resource_table(name: str, *own: sa.Column | sa.CheckConstraint) -> None:
    op.create_table(
        name,
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        *own,
        sa.Column("spec", JSONB, nullable=False),
        _timestamp("created_at", now=True),
        _timestamp("updated_at", now=True),
        sa.PrimaryKeyConstraint("name", name=f"pk_{name}"),
    )


def upgrade() -> None:
    op.execute(sa.schema.CreateSequence(sa.Sequence("resource_versions", data_type=sa.BigInteger)))
    _create_resource_table(
        "regions",
        sa.Column("admin_state", sa.Text, nullable=False),
        sa.CheckConstraint(
            "admin_state IN ('active', 'draining', 'disabled')", name="ck_regions_admin_state"
        ),
    )
    for name in _DOCUMENTS:
        _create_resource_table(name)
    op.create_table(
        "revisions",
        sa.Column("number", sa.BigInteger, autoincrement=False, nullable=False),
        _timestamp("created_at", now=True),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("comment", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("document", JSONB, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("summary", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_revisions"),
        sa.CheckConstraint("number > 0", name="ck_revisions_number"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("sha256", sa.LargeBinary, nullable=False),
        _timestamp("created_at", now=True),
        _timestamp("expires_at", nullable=True),
        _timestamp("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
        sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
        sa.CheckConstraint("role IN ('viewer', 'operator', 'admin', 'edge')", name="ck_tokens_role"),
        sa.CheckConstraint("octet_length(sha256) = 32", name="ck_tokens_sha256"),
    )
    op.create_table(
        "edges",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        _timestamp("first_seen"),
        _timestamp("last_seen"),
        sa.Column("revision_applied", sa.BigInteger, nullable=False),
        sa.Column("epoch_applied", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_edges"),
    )
    op.create_index("ix_edges_last_seen", "edges", ["last_seen"])


def downgrade() -> None:
    for table in ("edges", "tokens", "revisions", *_DOCUMENTS, "regions"):
        op.drop_table(table)
    op.execute(sa.schema.DropSequence(sa.Sequence("resource_versions")))

"""DNSSEC keys of zones."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dnssec_zones",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("signed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("withdrawing", sa.Boolean, nullable=False),
        sa.Column("sets", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_dnssec_zones"),
        sa.UniqueConstraint("version", name="uq_dnssec_zones_version"),
    )
    op.create_table(
        "dnssec_keys",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("zone", sa.Text(collation="C"), nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("urgent", sa.Boolean, nullable=False),
        sa.Column("dnskey", sa.LargeBinary, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_dnssec_keys"),
        sa.ForeignKeyConstraint(
            ["zone"], ["dnssec_zones.name"], name="fk_dnssec_keys_zone", ondelete="CASCADE"
        ),
        sa.CheckConstraint("role IN ('ksk', 'zsk')", name="ck_dnssec_keys_role"),
        sa.CheckConstraint(
            "state IN ('published', 'ready', 'active', 'retired')", name="ck_dnssec_keys_state"
        ),
    )
    op.create_index("ix_dnssec_keys_zone", "dnssec_keys", ["zone"])


def downgrade() -> None:
    op.drop_table("dnssec_keys")
    op.drop_table("dnssec_zones")

"""Recorded demand, minute by minute."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, REAL

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "demand_rows",
        sa.Column("id", sa.Integer, sa.Identity(always=True), nullable=False),
        sa.Column("row", sa.Text(collation="C"), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_demand_rows"),
        sa.UniqueConstraint("row", name="uq_demand_rows_row"),
    )
    op.create_index("ix_demand_rows_last_seen", "demand_rows", ["last_seen"])
    op.create_table(
        "demand_minutes",
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("total", sa.Double, nullable=False),
        sa.Column("rows", ARRAY(sa.Integer), nullable=False),
        sa.Column("counts", ARRAY(REAL), nullable=False),
        sa.PrimaryKeyConstraint("minute", "source", name="pk_demand_minutes"),
        sa.CheckConstraint("cardinality(rows) = cardinality(counts)", name="ck_demand_minutes_counts"),
    )


def downgrade() -> None:
    op.drop_table("demand_minutes")
    op.drop_table("demand_rows")

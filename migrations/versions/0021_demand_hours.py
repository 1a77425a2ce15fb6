"""Recorded demand added up by hour. Control adds up the hours that there are, one after the other."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "demand_hours",
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rows", ARRAY(sa.Integer), nullable=False),
        sa.Column("counts", ARRAY(sa.Double), nullable=False),
        sa.PrimaryKeyConstraint("hour", name="pk_demand_hours"),
        sa.CheckConstraint("cardinality(rows) = cardinality(counts)", name="ck_demand_hours_counts"),
    )


def downgrade() -> None:
    op.drop_table("demand_hours")

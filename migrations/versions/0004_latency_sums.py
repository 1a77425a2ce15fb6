"""What was measured of round trips."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "latency_sums",
        sa.Column("level", sa.Text(collation="C"), nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("region", sa.Text(collation="C"), nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("mean", sa.Double, nullable=False),
        sa.Column("spread", sa.Double, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sources", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("level", "key", "region", name="pk_latency_sums"),
    )


def downgrade() -> None:
    op.drop_table("latency_sums")

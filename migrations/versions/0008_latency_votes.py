"""Who disputes where a network is said to be."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "latency_votes",
        sa.Column("network", sa.Text(collation="C"), nullable=False),
        sa.Column("claim", sa.Text(collation="C"), nullable=False),
        sa.Column("region", sa.Text(collation="C"), nullable=False),
        sa.Column("reporter", sa.Text(collation="C"), nullable=False),
        sa.Column("edge", sa.Text(collation="C"), nullable=False),
        sa.Column("against", sa.Double, nullable=False),
        sa.Column("fits", sa.Double, nullable=False),
        sa.Column("ms", sa.Double, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("network", "claim", "region", "reporter", "edge", name="pk_latency_votes"),
    )


def downgrade() -> None:
    op.drop_table("latency_votes")

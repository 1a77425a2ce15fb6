"""The history of health: verdicts that changed, and what probes said by steps of five minutes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "health_changes",
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("region", sa.Text(collation="C"), nullable=False),
        sa.Column("url", sa.Text(collation="C"), nullable=False),
        sa.Column("vantage", sa.Text(collation="C"), nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("ms", sa.Double, nullable=True),
        sa.Column("edge_at", sa.Double, nullable=True),
        sa.PrimaryKeyConstraint("number", "region", "url", "vantage", name="pk_health_changes"),
    )
    op.create_index("ix_health_changes_region", "health_changes", ["region", "number"])
    op.create_table(
        "health_steps",
        sa.Column("region", sa.Text(collation="C"), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("series", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("region", "start", "source", name="pk_health_steps"),
    )
    op.create_index("ix_health_steps_start", "health_steps", ["start"])


def downgrade() -> None:
    op.drop_table("health_steps")
    op.drop_table("health_changes")

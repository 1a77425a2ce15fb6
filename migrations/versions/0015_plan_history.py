"""The plan's history: one row for each region and minute."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plan_minutes",
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("region", sa.Text(collation="C"), nullable=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("demand", sa.Double, nullable=False),
        sa.Column("planned", sa.Double, nullable=False),
        sa.Column("away", sa.Double, nullable=False),
        sa.Column("refused", sa.Double, nullable=False),
        sa.Column("use", sa.Double, nullable=True),
        sa.Column("price_ms", sa.Double, nullable=False),
        sa.Column("exhausted", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("minute", "region", name="pk_plan_minutes"),
        sa.CheckConstraint("samples > 0", name="ck_plan_minutes_samples"),
    )


def downgrade() -> None:
    op.drop_table("plan_minutes")

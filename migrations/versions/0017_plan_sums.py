"""Sums of the plan's history by quarter of an hour and by hour, so that days and weeks are read in one go."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_FILL = """
INSERT INTO plan_sums
SELECT :span, date_bin(make_interval(mins => :span), minute, TIMESTAMPTZ '2000-01-01 00:00:00Z'), region, count(*),
  sum(demand), sum(planned), sum(away), sum(refused), count(use), sum(use), max(use), sum(price_ms), max(price_ms), sum(exhausted)
FROM plan_minutes
GROUP BY 2, 3
"""


def upgrade() -> None:
    op.create_table(
        "plan_sums",
        sa.Column("span", sa.Integer, nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("region", sa.Text(collation="C"), nullable=False),
        sa.Column("minutes", sa.Integer, nullable=False),
        sa.Column("demand", sa.Double, nullable=False),
        sa.Column("planned", sa.Double, nullable=False),
        sa.Column("away", sa.Double, nullable=False),
        sa.Column("refused", sa.Double, nullable=False),
        sa.Column("use_minutes", sa.Integer, nullable=False),
        sa.Column("use", sa.Double, nullable=True),
        sa.Column("most_use", sa.Double, nullable=True),
        sa.Column("price_ms", sa.Double, nullable=False),
        sa.Column("most_price_ms", sa.Double, nullable=False),
        sa.Column("exhausted", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("span", "start", "region", name="pk_plan_sums"),
        sa.CheckConstraint("minutes > 0", name="ck_plan_sums_minutes"),
    )
    for span in (15, 60):
        op.execute(sa.text(_FILL).bindparams(span=span))


def downgrade() -> None:
    op.drop_table("plan_sums")

"""What requests took, and what balancers handed to peers, minute by minute and in sums."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "request_times",
        sa.Column("span", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        *_keys("region", "service", "model", "measure", "source"),
        sa.Column("buckets", ARRAY(sa.SmallInteger), nullable=False),
        sa.Column("counts", ARRAY(sa.BigInteger), nullable=False),
        sa.PrimaryKeyConstraint(
            *("span", "start", "region", "service", "model", "measure", "source"), name="pk_request_times"
        ),
        sa.CheckConstraint("cardinality(buckets) = cardinality(counts)", name="ck_request_times_counts"),
    )
    op.create_table(
        "request_pushes",
        sa.Column("span", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        *_keys("region", "service", "peer", "source"),
        sa.Column("requests", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            *("span", "start", "region", "service", "peer", "source"), name="pk_request_pushes"
        ),
    )


def _keys(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(collation="C"), nullable=False) for name in names]


def downgrade() -> None:
    op.drop_table("request_pushes")
    op.drop_table("request_times")

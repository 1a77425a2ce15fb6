"""What is learned keeps whose word it was: round trips by token, and how much each edge's token asked for. Control's own secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_secrets"),
    )
    op.create_table(
        "demand_peaks",
        sa.Column("token", sa.Text(collation="C"), nullable=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rate", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("token", "hour", name="pk_demand_peaks"),
    )
    author = sa.Column("author", sa.Text(collation="C"), nullable=False, server_default="")
    op.add_column("latency_sums", author)
    op.alter_column("latency_sums", "author", server_default=None)
    op.drop_constraint("pk_latency_sums", "latency_sums")
    op.create_primary_key("pk_latency_sums", "latency_sums", ["level", "key", "region", "author"])


def downgrade() -> None:
    op.execute(
        "DELETE FROM latency_sums AS one USING latency_sums AS other WHERE one.level = other.level AND one.key = other.key "
        "AND one.region = other.region AND (one.weight, one.author) < (other.weight, other.author)"
    )
    op.drop_constraint("pk_latency_sums", "latency_sums")
    op.create_primary_key("pk_latency_sums", "latency_sums", ["level", "key", "region"])
    op.drop_column("latency_sums", "author")
    op.drop_table("demand_peaks")
    op.drop_table("secrets")

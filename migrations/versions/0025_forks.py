"""Revisions that a database has lost, because it was restored from a backup, are never numbered again."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "forks",
        sa.Column("after", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("up_to", sa.BigInteger(), nullable=False),
        sa.Column("noted_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("up_to > after", name="up_to"),
    )


def downgrade() -> None:
    op.drop_table("forks")

"""Deletions of resources that others still refer to wait until these have changed."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deferred_deletions",
        sa.Column("kind", sa.Text(collation="C"), primary_key=True),
        sa.Column("name", sa.Text(collation="C"), primary_key=True),
        sa.Column("manager", sa.Text(), nullable=True),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("refused", sa.Boolean(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("deferred_deletions")

"""What the policy had and has no more keeps its rules: names, services, and the addresses of endpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gone",
        sa.Column("kind", sa.Text(collation="C"), primary_key=True),
        sa.Column("name", sa.Text(collation="C"), primary_key=True),
        sa.Column("region", sa.Text(collation="C"), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("country", sa.Text(), nullable=True),
        sa.Column("operator_country", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('name', 'service', 'target')", name="kind"),
    )


def downgrade() -> None:
    op.drop_table("gone")

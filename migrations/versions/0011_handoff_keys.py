"""The public keys by which edges sign handoffs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("edges", sa.Column("handoff_keys", ARRAY(sa.Text), nullable=False, server_default="{}"))
    op.add_column("edges", sa.Column("handoff_token", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("edges", "handoff_token")
    op.drop_column("edges", "handoff_keys")

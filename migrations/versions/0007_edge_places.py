"""Where edges stand."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("edges", sa.Column("country", sa.Text, nullable=True))
    op.add_column("edges", sa.Column("operator_country", sa.Text, nullable=True))


def downgrade() -> None:
    op.drop_column("edges", "operator_country")
    op.drop_column("edges", "country")

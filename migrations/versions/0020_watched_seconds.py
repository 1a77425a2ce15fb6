"""How many seconds of a recorded minute somebody watched: of those recorded before, all."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("demand_minutes", sa.Column("seconds", sa.Double, server_default="60", nullable=False))
    op.create_check_constraint(op.f("ck_demand_minutes_seconds"), "demand_minutes", "seconds > 0")


def downgrade() -> None:
    op.drop_column("demand_minutes", "seconds")

"""Sessions of people at the dashboard."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("sha256", sa.LargeBinary, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("sha256", name="uq_sessions_sha256"),
        sa.CheckConstraint("role IN ('viewer', 'operator', 'fence-admin', 'admin')", name="ck_sessions_role"),
        sa.CheckConstraint("octet_length(sha256) = 32", name="ck_sessions_sha256"),
    )
    op.create_index("ix_sessions_name", "sessions", ["name"])


def downgrade() -> None:
    op.drop_table("sessions")

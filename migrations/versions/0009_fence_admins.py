"""Role `fence-admin`, approvals of changes that open a fence, and names of revoked tokens to be used again."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_ROLES = "role IN ('viewer', 'operator', {}'admin', 'edge', 'reporter')"


def upgrade() -> None:
    op.create_table(
        "fence_approvals",
        sa.Column("sha256", sa.Text(collation="C"), nullable=False),
        sa.Column("approver", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "approver", name="pk_fence_approvals"),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="ck_fence_approvals_sha256"),
    )
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format("'fence-admin', "))
    op.drop_constraint("uq_tokens_name", "tokens", type_="unique")
    op.create_index(
        "uq_tokens_live_name", "tokens", ["name"], unique=True, postgresql_where=sa.text("revoked_at IS NULL")
    )
    op.create_index("ix_tokens_name", "tokens", ["name"])


def downgrade() -> None:
    # Older versions know one token of a name: the one that works, or else the last.
    op.execute(
        "DELETE FROM tokens USING tokens AS other WHERE tokens.name = other.name AND tokens.id <> other.id AND "
        "(tokens.revoked_at IS NOT NULL, other.created_at, other.id) > "
        "(other.revoked_at IS NOT NULL, tokens.created_at, tokens.id)"
    )
    # A fence-admin's token has no meaning to what is older; those who hold it get a new one.
    op.execute("DELETE FROM tokens WHERE role = 'fence-admin'")
    op.drop_index("ix_tokens_name", "tokens")
    op.drop_index("uq_tokens_live_name", "tokens")
    op.create_unique_constraint("uq_tokens_name", "tokens", ["name"])
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format(""))
    op.drop_table("fence_approvals")

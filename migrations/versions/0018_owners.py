"""Whose tokens are, in whose hands they are, and which accounts at identity providers came by which names."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("tokens", "fence_approvals"):
        # NULL: nobody wrote down whose it is, so that it counts as one with everybody. So does what a control of before adds meanwhile.
        op.add_column(table, sa.Column("owner", sa.Text, nullable=True))
        op.add_column(table, sa.Column("makers", sa.ARRAY(sa.Text), nullable=False, server_default="{}"))
    op.add_column("fence_approvals", sa.Column("credential", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "accounts",
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("account", "name", name="pk_accounts"),
    )
    # Of who signed in by an identity provider only a name is known: they sign in once more, and tell their account.
    op.execute("DELETE FROM sessions WHERE token = ''")


def downgrade() -> None:
    op.drop_table("accounts")
    op.drop_column("fence_approvals", "credential")
    for table in ("tokens", "fence_approvals"):
        for column in ("makers", "owner"):
            op.drop_column(table, column)

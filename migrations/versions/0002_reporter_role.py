"""Tokens of role `reporter`."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ROLES = "role IN ('viewer', 'operator', 'admin', 'edge'{})"


def upgrade() -> None:
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format(", 'reporter'"))


def downgrade() -> None:
    # A reporter's token has no meaning to what is older; those who hold it get a new one.
    op.execute("DELETE FROM tokens WHERE role = 'reporter'")
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format(""))

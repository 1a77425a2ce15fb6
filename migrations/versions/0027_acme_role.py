"""Tokens of role `acme`, which are bound to names."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_ROLES = "role IN ('viewer', 'operator', 'fence-admin', 'admin', 'edge', 'reporter', 'balancer'{})"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("names", sa.Text(), nullable=True))
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format(", 'acme'"))
    op.create_check_constraint("ck_tokens_names", "tokens", "(role = 'acme') = (names IS NOT NULL)")


def downgrade() -> None:
    # Such a token has no meaning to what is older.
    op.execute("DELETE FROM tokens WHERE role = 'acme'")
    op.drop_constraint("ck_tokens_names", "tokens", type_="check")
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format(""))
    op.drop_column("tokens", "names")

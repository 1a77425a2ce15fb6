"""Tokens of role `edge` speak for named edges."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("edges", sa.Text(), nullable=True))
    # Which edges run with which token was never written down: those of before go on speaking for any, with one vote.
    op.execute("UPDATE tokens SET edges = '*' WHERE role = 'edge'")
    op.create_check_constraint("ck_tokens_edges", "tokens", "(role = 'edge') = (edges IS NOT NULL)")


def downgrade() -> None:
    op.drop_constraint("ck_tokens_edges", "tokens", type_="check")
    op.drop_column("tokens", "edges")

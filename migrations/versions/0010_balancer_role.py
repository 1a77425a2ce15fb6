"""Tokens of role `balancer`, and those of balancers and reporters that are bound to regions."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_ROLES = "role IN ('viewer', 'operator', 'fence-admin', 'admin', 'edge', 'reporter'{})"


def upgrade() -> None:
    # Reporters of before are bound to nothing, and go on speaking of any region.
    op.add_column("tokens", sa.Column("regions", sa.Text(), nullable=True))
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format(", 'balancer'"))
    op.create_check_constraint(
        "ck_tokens_regions", "tokens", "role = 'reporter' OR (role = 'balancer') = (regions IS NOT NULL)"
    )


def downgrade() -> None:
    # A balancer's token has no meaning to what is older, and a bound reporter's would speak of every region there.
    op.execute("DELETE FROM tokens WHERE role = 'balancer' OR regions IS NOT NULL")
    op.drop_constraint("ck_tokens_regions", "tokens", type_="check")
    op.drop_constraint("ck_tokens_role", "tokens", type_="check")
    op.create_check_constraint("ck_tokens_role", "tokens", _ROLES.format(""))
    op.drop_column("tokens", "regions")

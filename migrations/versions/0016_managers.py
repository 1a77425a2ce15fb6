"""Which tool manages a resource of the policy, and which revision wrote it last."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_KINDS = (
    "regions",
    "zones",
    "services",
    "residency_rules",
    "spillover_rules",
    "jurisdictions",
    "tenants",
    "data_classes",
)


def upgrade() -> None:
    for table in _KINDS:
        op.add_column(table, sa.Column("manager", sa.Text(collation="C"), nullable=True))
        op.add_column(table, sa.Column("managed_since", sa.DateTime(timezone=True), nullable=True))
        op.add_column(table, sa.Column("revision", sa.BigInteger, nullable=True))
        op.create_check_constraint(
            op.f(f"ck_{table}_manager"), table, "(manager IS NULL) = (managed_since IS NULL)"
        )


def downgrade() -> None:
    for table in _KINDS:
        op.drop_constraint(op.f(f"ck_{table}_manager"), table, type_="check")
        for column in ("manager", "managed_since", "revision"):
            op.drop_column(table, column)

"""The audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# Whatever a later version of gtm, or a slip of its code, would do to what was written: the database says no.
_KEEP = """
CREATE FUNCTION audit_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    IF OLD.at < now() - interval '1 day' THEN
      RETURN OLD;
    END IF;
  END IF;
  RAISE EXCEPTION 'entries of the audit log are never changed, and not deleted within a day';
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=True),
        sa.Column("via", sa.Text, nullable=False),
        sa.Column("action", sa.Text(collation="C"), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("forced", sa.Boolean, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sa.CheckConstraint("via IN ('api', 'dashboard', 'direct', 'control')", name="ck_audit_via"),
        sa.CheckConstraint("count > 0", name="ck_audit_count"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.execute(_KEEP)
    op.execute(
        "CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_is_kept()"
    )
    op.execute(
        "CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_is_kept()"
    )


def downgrade() -> None:
    op.drop_table("audit")
    op.execute("DROP FUNCTION audit_is_kept()")

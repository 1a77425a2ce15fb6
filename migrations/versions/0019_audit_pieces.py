"""Parts of names are found in the audit log by an index: on all pieces of three letters, by means that every Postgres has."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_PIECES = """
CREATE FUNCTION audit_pieces(what text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
SELECT ARRAY(SELECT substr(low, n, 3) FROM generate_series(1, length(low) - 2) AS n) FROM (SELECT lower(what) AS low) AS letters
$$
"""


def upgrade() -> None:
    op.execute(_PIECES)
    for column in ("who", "target"):
        op.execute(f"CREATE INDEX ix_audit_{column}_pieces ON audit USING gin (audit_pieces({column}))")


def downgrade() -> None:
    for column in ("who", "target"):
        op.execute(f"DROP INDEX ix_audit_{column}_pieces")
    op.execute("DROP FUNCTION audit_pieces(text)")

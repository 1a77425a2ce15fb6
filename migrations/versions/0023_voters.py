"""Votes on where networks are keep the id of the token that they came with: a name may be another token's tomorrow."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "UPDATE latency_votes SET edge = (SELECT id FROM tokens WHERE name = edge AND revoked_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 1) "
        "WHERE edge IN (SELECT name FROM tokens WHERE revoked_at IS NULL)"
    )


def downgrade() -> None:
    op.execute(
        "DELETE FROM latency_votes AS one USING latency_votes AS other, tokens AS t, tokens AS o WHERE one.edge = t.id AND other.edge = o.id "
        "AND t.name = o.name AND one.network = other.network AND one.claim = other.claim AND one.region = other.region "
        "AND one.reporter = other.reporter AND (one.updated_at, one.edge) < (other.updated_at, other.edge)"
    )
    op.execute("UPDATE latency_votes SET edge = tokens.name FROM tokens WHERE tokens.id = edge")

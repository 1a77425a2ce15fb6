"""Check the migrations on a real Postgres: up, equal to the declared tables, down to nothing, up again."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psycopg

from gtm.storage import migrate
from gtm.storage.embedded import EmbeddedPostgres, EmbeddedPostgresError
from gtm.storage.errors import SchemaError, StorageUnavailable


def main() -> int:
    """Run the check; 0 when the migrations are right."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gtm-migrations-") as directory,
            EmbeddedPostgres(Path(directory), settings={"fsync": "off"}) as server,
        ):
            migrate.upgrade(server.url)
            migrate.check(server.url)
            migrate.downgrade(server.url, "base")
            left = _left(server.url)
            if left:
                print(f"migrations: downgrading to base leaves {', '.join(left)}", file=sys.stderr)
                return 1
            migrate.upgrade(server.url)
            migrate.check(server.url)
    except (SchemaError, StorageUnavailable, EmbeddedPostgresError) as e:
        print(f"migrations: {e}", file=sys.stderr)
        return 1
    print(f"migrations: {migrate.head()} goes up and down, and equals the declared tables")
    return 0


def _left(url: str) -> list[str]:
    """What is still in the schema beside Alembic's own table."""
    query = """
        SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'alembic_version%'
    """
    with psycopg.connect(url) as connection:
        return [name for (name,) in connection.execute(query)]


if __name__ == "__main__":
    sys.exit(main())

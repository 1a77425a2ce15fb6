"""Alembic's entry: `gtm.storage.migrate` hands in a connection; the command line takes GTM_DATABASE_URL."""

import os

from alembic import context
from sqlalchemy import Connection

from gtm.storage.migrate import engine
from gtm.storage.tables import metadata


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is not None:
    _migrate(connection)
else:
    with engine(os.environ.get("GTM_DATABASE_URL", "")).begin() as connection:
        _migrate(connection)

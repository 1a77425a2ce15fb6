"""A real Postgres for installations that bring none: one private server per data directory."""

from gtm.storage.embedded.lock import DataDirectoryInUse, DataDirectoryLock, EmbeddedPostgresError
from gtm.storage.embedded.server import EmbeddedPostgres, connection_url

__all__ = [
    "DataDirectoryInUse",
    "DataDirectoryLock",
    "EmbeddedPostgres",
    "EmbeddedPostgresError",
    "connection_url",
]

"""A real Postgres for installations that bring none: one private server per data directory."""

from gtm.storage.embedded.errors import DataDirectoryInUse, EmbeddedPostgresError
from gtm.storage.embedded.lock import DataDirectoryLock
from gtm.storage.embedded.server import EmbeddedPostgres, connection_url

__all__ = [
    "DataDirectoryInUse",
    "DataDirectoryLock",
    "EmbeddedPostgres",
    "EmbeddedPostgresError",
    "connection_url",
]

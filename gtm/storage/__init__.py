"""Postgres: tables, repositories, migrations, and the embedded server. Only this package writes queries."""

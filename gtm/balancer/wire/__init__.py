"""What clients and backends say, read and written: heads, bodies as far as a choice needs them, refusals, TLS."""

"""A process that owns an embedded Postgres: prints its URL, or why not, then waits for its input to end.

With a user id it becomes that user first, once all modules are loaded: Python itself may be root's alone.
"""

import os
import sys
from pathlib import Path

from gtm.storage.embedded import EmbeddedPostgres, EmbeddedPostgresError

directory, *user = sys.argv[1:]
for uid in map(int, user):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
server = EmbeddedPostgres(Path(directory))
try:
    url = server.start()
    print(url, (server.data_dir / "postgres/data/postmaster.pid").read_text().split()[0], flush=True)
except EmbeddedPostgresError as e:
    sys.exit(f"{type(e).__name__}: {e}")
sys.stdin.read()
server.stop()

"""`gtm backup` and `gtm restore`: control's database in a file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import DIRECT, Command, offers
from gtm.cli.common.exits import CommandError, Exit

app = typer.Typer()


@offers(app, having=DIRECT)
def backup(
    ask: Command, file: Annotated[Path, typer.Argument(help="The file to write; none is written over.")]
) -> None:
    """Write control's database to a file, while control goes on: policy and revisions, tokens, keys, histories, the audit log.

    `gtm export` writes the policy alone, as files that people edit.
    """
    from gtm.cli.common.database import database
    from gtm.storage import backup, migrate

    with database(ask.database_url, ask.data_dir) as url:
        schema = migrate.current(url)  # an earlier version's, too: a backup comes before an upgrade
        if schema is None:
            raise CommandError("the database is empty: there is nothing to back up", Exit.NO)
        with output.progress("reading the database"):
            backup.dump(url, file)
    size = file.stat().st_size
    if ask.printed_json({"file": str(file), "bytes": size, "schema": schema}):
        return
    output.say(f"{file}: {size / 1024:,.0f} KiB, schema `{schema}`")
    output.note("it holds private keys of signed zones and control's own: keep it as you keep passwords")


@offers(app, having=DIRECT)
def restore(ask: Command, file: Annotated[Path, typer.Argument(help="What `gtm backup` wrote.")]) -> None:
    """Make an empty database what a backup says: a new --data-dir, or a new database of a server. One that is not empty is refused."""
    from gtm.cli.common.database import database, failures
    from gtm.storage import backup, migrate

    with failures():
        schema = backup.schema_in(file)  # before anything is made
    with database(ask.database_url, ask.data_dir, create=True) as url:
        with output.progress("restoring"):
            backup.restore(url, file, schema)
        revision = migrate.value(url, "SELECT max(number)::text FROM revisions")
    if ask.printed_json({"revision": int(revision or 0), "schema": migrate.head()}):
        return
    output.say(f"restored: the policy is that of revision {revision or 0}, the schema `{migrate.head()}`")
    output.note(
        "edges that know later revisions keep theirs: `gtm status` names them once they are back, and `gtm revisions accept-older` ends it"
    )

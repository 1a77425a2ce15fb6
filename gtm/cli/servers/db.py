"""`gtm db`: migrations of the database's schema. Servers upgrade it by themselves when they start."""

from __future__ import annotations

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import DIRECT, Command, offers

app = typer.Typer(no_args_is_help=True)


@offers(app, having=DIRECT)
def upgrade(ask: Command) -> None:
    """Bring the schema to this version's; all of it or nothing."""
    from gtm.cli.common.database import database
    from gtm.storage import migrate

    with database(ask.database_url, ask.data_dir, create=True) as url:
        before = migrate.current(url)
        with output.progress("migrating"):
            migrate.upgrade(url)
        after = migrate.current(url)
    if ask.printed_json({"before": before, "after": after}):
        return
    if before == after:
        output.say(f"the schema is `{after}` already")
    else:
        output.say(f"upgraded the schema from {f'`{before}`' if before else 'nothing'} to `{after}`")


@offers(app, having=DIRECT)
def current(ask: Command) -> None:
    """Show the schema's revision, and the one that this version works with."""
    from gtm.cli.common.database import database
    from gtm.storage import migrate

    with database(ask.database_url, ask.data_dir) as url:
        found = migrate.current(url)
    wanted = migrate.head()
    if ask.printed_json({"current": found, "head": wanted}):
        return
    if found == wanted:
        output.say(f"{found} (this version's)")
    else:
        output.say(f"{found or 'no schema'} (this version works with {wanted}: run `gtm db upgrade`)")


@offers(app, having=DIRECT)
def check(ask: Command) -> None:
    """Compare the schema with what this version declares. Exit code 1 if they differ."""
    from gtm.cli.common.database import database
    from gtm.cli.common.exits import Exit
    from gtm.storage import migrate
    from gtm.storage.errors import SchemaError

    difference = None
    with database(ask.database_url, ask.data_dir) as url:
        try:
            with output.progress("comparing"):
                migrate.check(url)
        except SchemaError as error:
            difference = str(error)
    if not ask.printed_json({"ok": difference is None, "difference": difference}):
        output.say(difference or "the schema is this version's", "red" if difference else "green")
    if difference is not None:
        raise typer.Exit(Exit.NO)

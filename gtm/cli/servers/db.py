"""`gtm db`: migrations of the database's schema. Servers upgrade it by themselves when they start."""

from __future__ import annotations

import typer

from gtm.cli.common import options, output

app = typer.Typer(no_args_is_help=True)


@app.command()
def upgrade(
    *,
    data_dir: options.DataDir = options.DATA_DIR,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Bring the schema to this version's; all of it or nothing."""
    from gtm.cli.common.database import database
    from gtm.storage import migrate

    with database(database_url, data_dir, create=True) as url:
        before = migrate.current(url)
        with output.progress("migrating"):
            migrate.upgrade(url)
        after = migrate.current(url)
    if as_json:
        output.print_json({"before": before, "after": after})
    elif before == after:
        output.say(f"the schema is `{after}` already")
    else:
        output.say(f"upgraded the schema from {f'`{before}`' if before else 'nothing'} to `{after}`")


@app.command()
def current(
    *,
    data_dir: options.DataDir = options.DATA_DIR,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the schema's revision, and the one that this version works with."""
    from gtm.cli.common.database import database
    from gtm.storage import migrate

    with database(database_url, data_dir) as url:
        found = migrate.current(url)
    wanted = migrate.head()
    if as_json:
        output.print_json({"current": found, "head": wanted})
    elif found == wanted:
        output.say(f"{found} (this version's)")
    else:
        output.say(f"{found or 'no schema'} (this version works with {wanted}: run `gtm db upgrade`)")


@app.command()
def check(
    *,
    data_dir: options.DataDir = options.DATA_DIR,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare the schema with what this version declares. Exit code 1 if they differ."""
    from gtm.cli.common.database import database
    from gtm.cli.common.exits import Exit
    from gtm.storage import migrate
    from gtm.storage.errors import SchemaError

    difference = None
    with database(database_url, data_dir) as url:
        try:
            with output.progress("comparing"):
                migrate.check(url)
        except SchemaError as error:
            difference = str(error)
    if as_json:
        output.print_json({"ok": difference is None, "difference": difference})
    else:
        output.say(difference or "the schema is this version's", "red" if difference else "green")
    if difference is not None:
        raise typer.Exit(Exit.NO)

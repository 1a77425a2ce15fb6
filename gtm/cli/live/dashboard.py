"""`gtm dashboard`: a link that signs in at the dashboard."""

from __future__ import annotations

from typing import Annotated

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks

app = typer.Typer()


@asks(app)
def dashboard(
    ask: Command,
    *,
    browser: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser, too.")] = False,
) -> None:
    """Print a link that signs you in at the dashboard: once, within five minutes, as your token."""
    made = ask.api.create_sign_in_link()
    url = made.get("url") or ask.control_url.rstrip("/") + str(made.path)
    if not ask.printed_json({"url": url, "expires_in": made.expires_in}):
        output.say(url)
    if browser:
        typer.launch(url)

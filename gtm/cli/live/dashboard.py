"""`gtm dashboard`: a link that signs in at the dashboard."""

from __future__ import annotations

from typing import Annotated

import typer

from gtm.cli.common import options


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(dashboard)


def dashboard(
    *,
    browser: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser, too.")] = False,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a link that signs you in at the dashboard: once, within five minutes, as your token."""
    from gtm.cli.common import client, output

    api = client.control(control_url, token)
    made = api.call("POST", "/v1/sign-in-links").value
    url = made.get("url") or control_url.rstrip("/") + str(made["path"])
    if as_json:
        output.print_json({"url": url, "expires_in": made["expires_in"]})
    else:
        output.say(url)
    if browser:
        typer.launch(url)

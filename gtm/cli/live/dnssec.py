"""`gtm dnssec`: the keys of signed zones, their DS records, and rolling keys by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError

app = typer.Typer(no_args_is_help=True)


@app.command()
def status(
    zone: Annotated[str | None, typer.Argument(help="The zone; without it all that have keys.")] = None,
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show keys, what they wait for, and the DS record that the parent should have."""
    from gtm.cli.common import client, output

    control = client.control(control_url, token)
    if zone is not None:
        found = control.get(_path(zone))
        output.print_json(found) if as_json else _print(found)
        return
    every = control.get("/v1/dnssec")
    if every["problem"]:
        output.warn([every["problem"]])
    if as_json:
        output.print_json(every)
        return
    output.table(
        ("zone", "signed", "keys", "waits for"),
        (
            (
                item["zone"],
                "yes" if item["signed"] else "no",
                ", ".join(f"{key['role']} {key['tag']} {key['state']}" for key in item["keys"]),
                item["waits_for"],
            )
            for item in every["items"]
        ),
        empty="no zone is signed: set `dnssec: true` in a zone's policy",
    )


@app.command()
def roll(
    zone: Annotated[str, typer.Argument(help="The zone.")],
    *,
    zsk: Annotated[bool, typer.Option("--zsk", help="Replace the zone-signing key.")] = False,
    ksk: Annotated[bool, typer.Option("--ksk", help="Replace the key-signing key.")] = False,
    ds_seen: Annotated[
        bool,
        typer.Option("--ds-seen", help="Go on: the parent has the DS record of the newest key-signing key."),
    ] = False,
    urgent: Annotated[
        bool,
        typer.Option(
            "--urgent",
            help="Don't wait for edges that have lost control: theirs may be taken for forged. For stolen keys.",
        ),
    ] = False,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Replace a key, step by step, without a moment in which answers do not validate."""
    from gtm.cli.common import client, output

    if zsk + ksk + ds_seen != 1 or (ds_seen and urgent):
        raise CommandError("say one of --zsk, --ksk and --ds-seen, the first two perhaps with --urgent")
    control = client.control(control_url, token)
    if ds_seen:
        found = control.call("POST", f"{_path(zone)}/ds-seen").value
    else:
        body = {"role": "zsk" if zsk else "ksk", "urgent": urgent}
        found = control.call("POST", f"{_path(zone)}/roll", body=body).value
    output.print_json(found) if as_json else _print(found)


@app.command()
def withdraw(
    zone: Annotated[str, typer.Argument(help="The zone.")],
    *,
    undo: Annotated[bool, typer.Option("--undo", help="No longer ask for it.")] = False,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask the parent to drop its DS records (CDS and CDNSKEY): the first step of switching DNSSEC off."""
    from gtm.cli.common import client, output

    control = client.control(control_url, token)
    found = control.call("POST", f"{_path(zone)}/withdraw", body={"withdrawing": not undo}).value
    output.print_json(found) if as_json else _print(found)


def _path(zone: str) -> str:
    from gtm.cli.common import client

    return f"/v1/dnssec/{client.segment(zone)}"


def _print(found: Mapping[str, Any]) -> None:
    """A zone's keys, and the record for the parent on a line of its own, to be copied."""
    from gtm.cli.common import output

    if found["problem"]:
        output.warn([found["problem"]])
    output.facts(
        [
            ("zone", found["zone"]),
            ("signed", "yes" if found["signed"] else "no"),
            ("waits for", found["waits_for"]),
            ("signatures", f"good until {output.when(found['signatures_until'])} UTC"),
        ]
    )
    output.say("")
    output.table(
        ("key", "role", "state", "since (UTC)", "next state (UTC)", "urgent"),
        (
            (
                str(key["tag"]),
                key["role"],
                key["state"],
                output.when(key["since"]),
                output.when(key["next_at"]),
                "yes" if key["urgent"] and key["state"] in ("published", "retired") else "",
            )
            for key in found["keys"]
        ),
        empty="",
    )
    if found["ds"]:
        start = found["ds_from"]
        output.say("")
        output.say(f"for the parent{f', from {output.when(start)} UTC on' if start else ''}:")
        for record in found["ds"]:
            output.say(record)

"""`gtm dnssec`: the keys of signed zones, their DS records, and rolling keys by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError
from gtm.cli.common.output import moment

if TYPE_CHECKING:
    from gtm.client import types

app = typer.Typer(no_args_is_help=True)


@asks(app)
def status(
    ask: Command,
    zone: Annotated[str | None, typer.Argument(help="The zone; without it all that have keys.")] = None,
) -> None:
    """Show keys, what they wait for, and the DS record that the parent should have."""
    if zone is not None:
        _show(ask, ask.api.get_dnssec(zone))
        return
    every = ask.api.list_dnssec()
    if every.problem:
        output.warn([every.problem])
    if ask.printed_json(every):
        return
    columns: dict[str, output.Column] = {
        "zone": "zone",
        "signed": lambda one: "yes" if one.signed else "no",
        "keys": lambda one: ", ".join(f"{key.role} {key.tag} {key.state}" for key in one.keys_),
        "waits for": "waits_for",
    }
    output.records(every.items_, columns, empty="no zone is signed: set `dnssec: true` in a zone's policy")


@asks(app)
def roll(
    ask: Command,
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
) -> None:
    """Replace a key, step by step, without a moment in which answers do not validate."""
    if zsk + ksk + ds_seen != 1 or (ds_seen and urgent):
        raise CommandError("say one of --zsk, --ksk and --ds-seen, the first two perhaps with --urgent")
    if ds_seen:
        found = ask.api.confirm_ds(zone)
    else:
        found = ask.api.roll_dnssec_key(zone, {"role": "zsk" if zsk else "ksk", "urgent": urgent})
    _show(ask, found)


@asks(app)
def withdraw(
    ask: Command,
    zone: Annotated[str, typer.Argument(help="The zone.")],
    *,
    undo: Annotated[bool, typer.Option("--undo", help="No longer ask for it.")] = False,
) -> None:
    """Ask the parent to drop its DS records (CDS and CDNSKEY): the first step of switching DNSSEC off."""
    _show(ask, ask.api.withdraw_ds(zone, {"withdrawing": not undo}))


def _show(ask: Command, found: types.ZoneKeysSchema) -> None:
    """A zone's keys, and the record for the parent on a line of its own, to be copied."""
    if ask.printed_json(found):
        return
    if found.problem:
        output.warn([found.problem])
    output.facts(
        [
            ("zone", found.zone),
            ("signed", "yes" if found.signed else "no"),
            ("waits for", found.waits_for),
            ("signatures", f"good until {output.when(found.signatures_until)} UTC"),
        ]
    )
    output.say("")
    columns: dict[str, output.Column] = {
        "key": lambda one: str(one.tag),
        "role": "role",
        "state": "state",
        "since (UTC)": moment("since"),
        "next state (UTC)": moment("next_at"),
        "urgent": lambda one: "yes" if one.urgent and one.state in ("published", "retired") else "",
    }
    output.records(found.keys_, columns, empty="")
    if found.ds:
        start = found.ds_from
        output.say("")
        output.say(f"for the parent{f', from {output.when(start)} UTC on' if start else ''}:")
        for record in found.ds:
            output.say(record)

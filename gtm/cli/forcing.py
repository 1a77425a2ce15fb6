"""Changes against the safety rules: what the rules say, and the options that overrule them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gtm.cli.exits import CommandError

Force = Annotated[
    bool, typer.Option("--force", help="Make the change although it breaks safety rules; needs --reason.")
]
Reason = Annotated[str, typer.Option(help="Why it has to be forced; kept with the revision.")]


def parameters(*, force: bool, reason: str) -> dict[str, Any]:
    """What a change's request says of being forced.

    Raises:
        CommandError: one option without the other.
    """
    if force and not reason.strip():
        raise CommandError("--force needs --reason: say why the change has to be made all the same")
    if reason.strip() and not force:
        raise CommandError(
            "--reason without --force means nothing: --comment is what is kept with any change"
        )
    return {"force": "true", "force_reason": reason.strip()} if force else {}


def breaches(safety: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The safety rules that a change breaks, a sentence each; None: nobody was asked."""
    found = () if safety is None else safety["breaches"]
    return tuple(f"{breach['rule']}: {breach['message']}" for breach in found)


def numbers(safety: Mapping[str, Any] | None) -> str:
    """What the safety rules measured, and what they could not, in a line; empty if they have nothing to say."""
    if safety is None:
        return ""
    parts = []
    if safety["moved"] is not None:
        parts.append(f"{safety['moved']:.1%} of the present requests would leave their region")
    parts += [f"not checked: {text}" for text in safety["unchecked"]]
    return "; ".join(parts)

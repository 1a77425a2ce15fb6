"""Changes against the safety rules: what the rules say, and the options that overrule them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common.exits import CommandError
from gtm.cli.policy.managed import OnManaged

if TYPE_CHECKING:
    from gtm.client import types

_PROTECTED = frozenset(("fence", "deletion"))

Force = Annotated[
    bool, typer.Option("--force", help="Make the change although it breaks safety rules; needs --reason.")
]
Reason = Annotated[
    str,
    typer.Option(
        help="Why it has to be forced, or what another tool manages changed; kept with the revision."
    ),
]


def parameters(*, force: bool, reason: str, on_managed: OnManaged | None = None) -> dict[str, Any]:
    """What a change's request says of being forced, and of what other tools manage.

    Raises:
        CommandError: one option without the other.
    """
    said = reason.strip()
    if force and not said:
        raise CommandError("--force needs --reason: say why the change has to be made all the same")
    if on_managed is not None and not said:
        raise CommandError("--on-managed needs --reason: say why what another tool manages is changed here")
    if said and not force and on_managed is None:
        raise CommandError(
            "--reason without --force or --on-managed means nothing: --comment is what is kept with any change"
        )
    forced = {"force": True, "force_reason": said} if force else {}
    if on_managed is None:
        return forced
    return {**forced, "on_managed": on_managed.value.replace("-", "_"), "managed_reason": said}


def breaches(safety: types.SafetySchema | None) -> tuple[str, ...]:
    """The safety rules that a change breaks, a sentence each; None: nobody was asked."""
    found = () if safety is None else safety.breaches
    return tuple(f"{breach.rule}: {breach.message}" for breach in found)


def refusal(safety: types.SafetySchema, folder: Path) -> str:
    """Why a folder is not applied, and what it would take."""
    rules = {breach.rule for breach in safety.breaches}
    if "deletion" in rules:
        parts = [
            f"is `{folder}` the right folder? What it does not hold is deleted, and that is much; nothing was changed"
        ]
    else:
        parts = ["the change is not safe now, and nothing was changed"]
    protected = sorted(rules & _PROTECTED)
    who = f", with a token of role fence-admin (for {' and '.join(protected)})" if protected else ""
    parts.append(f"--force --reason TEXT makes it all the same{who}")
    if safety.get("fingerprint"):
        parts.append(
            "before that somebody else with such a token has to approve of it: "
            f"gtm fence approve {safety.fingerprint} --reason TEXT"
        )
    return "; ".join(parts)


def numbers(safety: types.SafetySchema | None) -> str:
    """What the safety rules measured, and what they could not, in a line; empty if they have nothing to say."""
    if safety is None:
        return ""
    parts = []
    if safety.moved is not None:
        parts.append(f"{safety.moved:.1%} of the present requests would leave their region")
        if safety.get("moved_by_law"):
            parts.append(f"{safety.moved_by_law:.1%} because their fence is tightened")
    parts += [f"not checked: {text}" for text in safety.unchecked]
    return "; ".join(parts)

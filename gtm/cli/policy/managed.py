"""`gtm managed`: which tools manage resources, and letting go of them; and what changes say of it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError
from gtm.cli.common.output import moment
from gtm.core.model.kinds import label

if TYPE_CHECKING:
    from gtm.client import types

app = typer.Typer(no_args_is_help=True)
_TOOL = "gtm-apply"
_MOST = 10


class OnManaged(StrEnum):
    """What to do with what another tool manages."""

    OVERRIDE = "override"
    TAKE_OVER = "take-over"


ManagedBy = Annotated[
    str,
    typer.Option(
        "--managed-by",
        metavar="NAME",
        help="Manage what is written from now on, as gtm-apply/NAME: others are refused, or have to say that they mean it.",
    ),
]
OnlyOwn = Annotated[
    bool,
    typer.Option(
        "--only-own",
        help="With --managed-by: of what the folder does not hold, delete only what NAME manages.",
    ),
]
Purpose = Annotated[
    OnManaged | None,
    typer.Option(
        "--on-managed",
        help="Change what another tool manages: this once (override), or to manage it from now on (take-over, with "
        "--managed-by). Needs --reason.",
    ),
]
_Manager = Annotated[str, typer.Argument(help="Who manages it: TOOL/NAME, as `gtm managed list` shows it.")]
_Resources = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KIND/NAME]...", help="Which resources (services/chat); left out: all of its."),
]
_Why = Annotated[str, typer.Option("--reason", help="Why; kept in the audit log.")]


def tool(managed_by: str) -> str | None:
    """For which tool a request is made; None: for nobody's.

    Raises:
        CommandError: the name cannot be one.
    """
    if not managed_by:
        return None
    if not managed_by.isascii() or not managed_by.isprintable():
        raise CommandError("--managed-by: a name is letters, digits and . _ : / @ + -")
    return f"{_TOOL}/{managed_by}"


def sentences(managed: Iterable[types.ManagedResourceSchema]) -> tuple[str, ...]:
    """What other tools manage of a change, a sentence each."""
    return tuple(
        f"{label(one.kind)} {one.name} is managed by {one.manager} since {output.when(one.since)} UTC"
        for one in managed
    )


def require(planned: types.PolicyChanged, purpose: OnManaged | None) -> None:
    """Say what other tools manage of a change that was only tried, and end there unless it is meant.

    Raises:
        CommandError: it is not.
    """
    said = sentences(planned.get("managed", ()))
    if said and purpose is None:
        raise CommandError(refusal(), problems=said)
    what = {
        OnManaged.OVERRIDE: "its next run will undo this unless its code changes too",
        OnManaged.TAKE_OVER: "taken over",
    }
    output.warn(f"{text}: {what[purpose]}" for text in said[:_MOST] if purpose)
    if len(said) > _MOST:
        output.warn([f"and {len(said) - _MOST} more resources of other tools"])


def refusal() -> str:
    """Why a change is not made, and what it would take."""
    return (
        "other tools manage a part of this, and nothing was changed: change it there; --on-managed override --reason TEXT makes the "
        "change this once, and the tool's next run will undo it unless its code changes too"
    )


@asks(app, "list")
def list_(
    ask: Command,
    manager: Annotated[str | None, typer.Argument(help="List what this one manages (TOOL/NAME).")] = None,
) -> None:
    """List the tools that manage resources, or what one of them manages."""
    if manager is None:
        columns: dict[str, output.Column] = {
            "managed by": "manager",
            "since (UTC)": moment("since"),
            "resources": lambda one: ", ".join(f"{kind} {count}" for kind, count in one.resources.items()),
        }
        ask.table(ask.api.list_managers().items_, columns, empty="no tool manages anything")
        return
    items = list(ask.api.search_resources(managed_by=manager))
    if not ask.printed_json([{name: one[name] for name in ("kind", "name", "managed_by")} for one in items]):
        rows = (
            (label(one.kind), one.name, output.when(one.managed_by and one.managed_by.since)) for one in items
        )
        output.table(("kind", "name", "since (UTC)"), rows, empty=f"{manager} manages nothing")


@asks(app)
def release(ask: Command, manager: _Manager, resources: _Resources = None, *, reason: _Why) -> None:
    """Let nobody manage what a tool manages: all of it, or some. The resources stay as they are."""
    _reassign(ask, manager, None, resources, reason)


@asks(app, "hand-over")
def hand_over(
    ask: Command,
    manager: _Manager,
    to: Annotated[str, typer.Argument(help="Who shall manage it: TOOL/NAME.")],
    resources: _Resources = None,
    *,
    reason: _Why,
) -> None:
    """Let another tool manage what one manages: all of it, or some. The resources stay as they are."""
    _reassign(ask, manager, to, resources, reason)


def _reassign(ask: Command, manager: str, to: str | None, resources: list[str] | None, reason: str) -> None:
    body: Any = {"manager": manager, "to": to, "reason": reason}
    if resources:
        body["resources"] = [_key(one) for one in resources]
    done = ask.api.reassign_managers(body)
    if ask.printed_json(done):
        return
    for one in done.resources:
        output.say(f"{label(one['kind'])} {one['name']}")
    count = len(done.resources)
    words = f"{count} resource{'' if count == 1 else 's'}"
    output.say(f"{words} managed by {to} now" if to else f"{words} released: no tool manages them now")


def _key(text: str) -> dict[str, str]:
    """A resource as it is typed, `services/chat` or `residency-rules/gdpr`.

    Raises:
        CommandError: it is none.
    """
    kind, slash, name = text.partition("/")
    if not slash or not name:
        raise CommandError(f"`{text}` is no resource: write KIND/NAME, such as services/chat")
    return {"kind": kind.replace("-", "_"), "name": name}

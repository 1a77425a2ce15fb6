"""`gtm revisions`: what the policy was, who changed it, and the way back."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from gtm.cli.common import changes, options, output
from gtm.cli.common.commands import CHANGES, Command, asks
from gtm.cli.common.output import moment
from gtm.cli.policy import managed, safety

app = typer.Typer(no_args_is_help=True)

_Number = Annotated[int, typer.Argument(help="The revision's number.", min=1)]


@asks(app, "list")
def list_(ask: Command, *, limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 20) -> None:
    """List revisions, newest first."""
    columns: dict[str, output.Column] = {
        "revision": "number",
        "created (UTC)": moment("created_at"),
        "author": "author",
        "changes": lambda one: _summary(one.summary),
        "comment": "comment",
    }
    ask.table(islice(ask.api.list_revisions(), limit), columns, empty="there are no revisions yet")


@asks(app)
def show(ask: Command, number: _Number) -> None:
    """Show a revision with its whole policy."""
    found: Any = ask.api.get_revision(number)
    if ask.printed_json(found):
        return
    for name in ("number", "author", "comment", "sha256"):
        output.say(f"# {name}: {found[name]}".replace("\n", "\n#   "))
    output.say(f"# created: {output.when(found.created_at)} UTC")
    output.print_document(output.yaml_text({kind: items for kind, items in found.policy.items() if items}))


@asks(app)
def diff(
    ask: Command,
    number: _Number,
    against: Annotated[
        int | None, typer.Argument(help="Compare with this one (0: the empty policy).", min=0)
    ] = None,
) -> None:
    """Show what a revision changed: since the one before, or since another."""
    found = ask.api.diff_revision(number, against=against)
    if ask.printed_json(found):
        return
    output.say(f"from revision {found.against} to revision {found.revision}:", "bold")
    changes.show_changes(found.changes)
    if not found.changes:
        output.say("no differences")


@asks(app, also=CHANGES)
def rollback(
    ask: Command,
    number: _Number,
    *,
    comment: options.Comment = "",
    yes: options.Yes = False,
    force: safety.Force = False,
    reason: safety.Reason = "",
    managed_by: managed.ManagedBy = "",
    on_managed: managed.Purpose = None,
) -> None:
    """Put an earlier revision's policy in force again, as a new revision. Regions keep their admin states."""
    forced = safety.parameters(force=force, reason=reason, on_managed=on_managed)
    tool = managed.tool(managed_by)
    options.require_consent(yes=yes, as_json=ask.as_json)
    planned = ask.api.rollback_revision(number, {"dry_run": True}, managed_by=tool)
    if not ask.as_json:
        output.say(f"from revision {planned.revision} to the policy of revision {number}:", "bold")
        changes.show_changes(planned.changes)
    managed.require(planned, on_managed)
    if not yes:
        options.confirm(f"Roll back to revision {number}?")
    done = ask.api.rollback_revision(
        number, {"comment": comment}, if_match=f'"{planned.revision}"', managed_by=tool, **forced
    )
    if not done.changes and not ask.as_json:
        output.say("no changes; regions keep their admin states of today")
    changes.report_change(ask, done)


@asks(app, "accept-older")
def accept_older(
    ask: Command,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit log.")] = "",
    yes: options.Yes = False,
) -> None:
    """Have edges and balancers go back to what control's database has, after it was restored from a backup."""
    options.require_consent(yes=yes, as_json=ask.as_json)
    if not yes:
        options.confirm(
            "Nobody can tell which fences the lost revisions closed. Go back to what the database has?"
        )
    done = ask.api.accept_older({"reason": reason})
    if ask.printed_json(done):
        return
    for lost in done.lost:
        output.say(
            f"revisions {lost.after + 1} to {lost.up_to} are given up; those who hold one follow control again"
        )


def _summary(summary: dict[str, Any]) -> str:
    """`regions +2 ~1, services -1`."""
    marks = {"created": "+", "updated": "~", "deleted": "-"}
    return ", ".join(
        f"{kind} " + " ".join(f"{marks.get(action, action)}{count}" for action, count in actions.items())
        for kind, actions in summary.items()
    )

"""`gtm revisions`: what the policy was, who changed it, and the way back."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from gtm.cli.common import options
from gtm.cli.policy import managed, safety

app = typer.Typer(no_args_is_help=True)

_Number = Annotated[int, typer.Argument(help="The revision's number.", min=1)]


@app.command("list")
def list_(
    *,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 20,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """List revisions, newest first."""
    from gtm.cli.common import client, output

    found = list(islice(client.control(control_url, token).items("/v1/revisions"), limit))
    if as_json:
        output.print_json(found)
        return
    output.table(
        ("revision", "created (UTC)", "author", "changes", "comment"),
        (
            (
                item["number"],
                output.when(item["created_at"]),
                item["author"],
                _summary(item["summary"]),
                item["comment"],
            )
            for item in found
        ),
        empty="there are no revisions yet",
    )


@app.command()
def show(
    number: _Number,
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a revision with its whole policy."""
    from gtm.cli.common import client, output

    found = client.control(control_url, token).get(f"/v1/revisions/{number}")
    if as_json:
        output.print_json(found)
        return
    for name in ("number", "author", "comment", "sha256"):
        output.say(f"# {name}: {found[name]}".replace("\n", "\n#   "))
    output.say(f"# created: {output.when(found['created_at'])} UTC")
    output.print_document(output.yaml_text({kind: items for kind, items in found["policy"].items() if items}))


@app.command()
def diff(
    number: _Number,
    against: Annotated[
        int | None, typer.Argument(help="Compare with this one (0: the empty policy).", min=0)
    ] = None,
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a revision changed: since the one before, or since another."""
    from gtm.cli.common import changes, client, output

    found = client.control(control_url, token).get(f"/v1/revisions/{number}/diff", against=against)
    if as_json:
        output.print_json(found)
        return
    output.say(f"from revision {found['against']} to revision {found['revision']}:", "bold")
    changes.show_changes(found["changes"])
    if not found["changes"]:
        output.say("no differences")


@app.command()
def rollback(
    number: _Number,
    *,
    comment: options.Comment = "",
    yes: options.Yes = False,
    force: safety.Force = False,
    reason: safety.Reason = "",
    managed_by: managed.ManagedBy = "",
    on_managed: managed.Purpose = None,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    wait: options.Wait = True,
    timeout: options.Timeout = options.WAIT_SECONDS,
    as_json: options.AsJson = False,
) -> None:
    """Put an earlier revision's policy in force again, as a new revision. Regions keep their admin states."""
    from gtm.cli.common import changes, client, consent, output

    forced = safety.parameters(force=force, reason=reason, on_managed=on_managed)
    headers = managed.headers(managed_by)
    consent.require(yes=yes, as_json=as_json)
    api = client.control(control_url, token)
    path = f"/v1/revisions/{number}:rollback"
    planned = api.call("POST", path, body={"dry_run": True}, headers=headers).value
    if not as_json:
        output.say(f"from revision {planned['revision']} to the policy of revision {number}:", "bold")
        changes.show_changes(planned["changes"])
    managed.require(planned, on_managed)
    if not yes:
        consent.confirm(f"Roll back to revision {number}?")
    headers["If-Match"] = f'"{planned["revision"]}"'
    done = api.call("POST", path, parameters=forced, body={"comment": comment}, headers=headers).value
    if not done["changes"] and not as_json:
        output.say("no changes; regions keep their admin states of today")
    changes.report_change(api, done, wait=wait, timeout=timeout, as_json=as_json)


@app.command("accept-older")
def accept_older(
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit log.")] = "",
    yes: options.Yes = False,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Have edges and balancers go back to what control's database has, after it was restored from a backup."""
    from gtm.cli.common import client, consent, output

    consent.require(yes=yes, as_json=as_json)
    if not yes:
        consent.confirm(
            "Nobody can tell which fences the lost revisions closed. Go back to what the database has?"
        )
    done = client.control(control_url, token).call(
        "POST", "/v1/revisions:accept-older", body={"reason": reason}
    )
    if as_json:
        output.print_json(done.value)
        return
    for lost in done.value["lost"]:
        output.say(
            f"revisions {lost['after'] + 1} to {lost['up_to']} are given up; those who hold one follow control again"
        )


def _summary(summary: dict[str, Any]) -> str:
    """`regions +2 ~1, services -1`."""
    marks = {"created": "+", "updated": "~", "deleted": "-"}
    return ", ".join(
        f"{kind} " + " ".join(f"{marks.get(action, action)}{count}" for action, count in actions.items())
        for kind, actions in summary.items()
    )

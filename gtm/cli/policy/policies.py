"""`gtm check`, `plan`, `apply` and `export`: policy as a folder of YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import changes, options, output
from gtm.cli.common.commands import CHANGES, Command, asks
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.common.policy_folder import explained, read_whole, require_readable
from gtm.cli.policy import managed, safety

if TYPE_CHECKING:
    from gtm.client import types
    from gtm.documents.check import CheckReport
    from gtm.documents.folders import Folder as Read


app = typer.Typer()


def _named(text: str) -> Path:
    """A path that somebody named. `gtm apply "$POLICY"` where nothing is set would apply the folder that it runs in."""
    if not text:
        raise typer.BadParameter("it is empty: name a folder, `.` for the one you are in")
    return Path(text)


Folder = Annotated[
    Path,
    typer.Argument(help="A folder of YAML and JSON files, with those below it; or one file.", parser=_named),
]


@app.command()
def check(
    folder: Folder,
    *,
    geoip_db: options.GeoipDb = None,
    geoip_overrides: options.GeoipOverrides = None,
    geoip_anonymous_db: options.GeoipAnonymousDb = None,
    as_json: options.AsJson = False,
) -> None:
    """Check a policy and the expected decisions beside it (expect.yaml), without any server."""
    import time

    from gtm.documents.check import check_folder
    from gtm.geoip.reader import GeoIPError, Locator

    require_readable(folder)
    try:
        locator = Locator(geoip_db, geoip_overrides, anonymous=geoip_anonymous_db)
    except (GeoIPError, OSError) as error:
        raise CommandError(f"cannot locate addresses: {error}") from error
    with output.progress(f"checking {folder}") as bar:

        def locate(address: str | bytes) -> Any:
            bar.advance(bar.task_ids[0])
            return locator.locate(address)

        with explained():
            report = check_folder(folder, locate, time.time())
    locator.close()
    (_report_json if as_json else _report)(report)
    if not report.ok:
        raise typer.Exit(Exit.NO)


@asks(app)
def plan(
    ask: Command,
    folder: Folder,
    *,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 if there are changes, 0 if there are none.")
    ] = False,
    managed_by: managed.ManagedBy = "",
    only_own: managed.OnlyOwn = False,
) -> None:
    """Show what `gtm apply` would change. Changes nothing."""
    body, tool, read = _request(folder, managed_by, only_own=only_own)
    planned = _plan(ask, body, tool)
    output.warn(_warnings(planned, read))
    if not ask.printed_json(planned):
        changes.show_changes(planned.changes)
        said = managed.sentences(planned.get("managed", ()))
        for text in said:
            output.say(f"managed: {text}", "red")
        if said:
            output.say(f"`gtm apply` would refuse this: {managed.refusal()}", "red")
        if planned.changes:
            _safety(planned.safety, folder)
            output.say(f"`gtm apply {folder}` makes these changes to revision {planned.revision}")
        else:
            output.say(f"no changes: revision {planned.revision} is what {folder} says")
    if exit_code and planned.changes:
        raise typer.Exit(Exit.NO)


@asks(app, also=CHANGES)
def apply(
    ask: Command,
    folder: Folder,
    *,
    yes: options.Yes = False,
    comment: options.Comment = "",
    force: safety.Force = False,
    reason: safety.Reason = "",
    managed_by: managed.ManagedBy = "",
    only_own: managed.OnlyOwn = False,
    on_managed: managed.Purpose = None,
) -> None:
    """Make a folder the policy: show what changes, ask, apply, and wait until the edges have it.

    What the folder does not hold is deleted. Nothing else can get between what was shown and what is applied.
    """
    forced = safety.parameters(force=force, reason=reason, on_managed=on_managed)
    body, tool, read = _request(folder, managed_by, only_own=only_own)
    planned = _plan(ask, body, tool)
    if not planned.changes:
        managed.require(planned, on_managed)
        if managed_by:  # nothing differs, and all of it is to be the tool's
            planned = ask.api.apply_policy(body, managed_by=tool, **forced)
        output.warn(_warnings(planned, read))
        if not ask.printed_json({**planned, "dry_run": False}):
            output.say(f"no changes: revision {planned.revision} is what {folder} says")
        return
    if not ask.as_json:
        changes.show_changes(planned.changes)
    output.warn(_findings(planned, read))
    judged = planned.safety
    unsafe = safety.breaches(judged)
    if judged and unsafe and not force:
        raise CommandError(safety.refusal(judged, folder), Exit.BAD_INPUT, unsafe)
    output.warn(unsafe)
    managed.require(planned, on_managed)
    options.require_consent(yes=yes, as_json=ask.as_json)
    if not yes:
        options.confirm("Apply these changes?")
    body["comment"] = comment
    with output.progress(f"applying {folder}"):
        done = ask.api.apply_policy(body, if_match=f'"{planned.revision}"', managed_by=tool, **forced)
    changes.report_change(ask, done)


def _safety(judged: types.SafetySchema | None, folder: Path) -> None:
    """What the safety rules say of a change."""
    unsafe = safety.breaches(judged)
    for text in unsafe:
        output.say(f"unsafe: {text}", "red")
    if judged and unsafe:
        output.say(f"`gtm apply` would refuse this: {safety.refusal(judged, folder)}", "red")
    said = safety.numbers(judged)
    if said:
        output.say(f"safety: {said}")


def _request(folder: Path, managed_by: str, *, only_own: bool) -> tuple[Any, str | None, Read]:
    """What a folder's request holds: its body, and for which tool it is made; and the folder as it was read.

    Raises:
        CommandError: the folder has problems, or the options do not go together.
    """
    if only_own and not managed_by:
        raise CommandError("--only-own needs --managed-by: whose own?")
    tool = managed.tool(managed_by)
    read = read_whole(folder, alone=not only_own)
    body: dict[str, Any] = {"policy": read.document().model_dump(mode="json")}
    if only_own:
        body["only_own"] = True
    return body, tool, read


def _plan(ask: Command, body: Any, tool: str | None) -> types.PolicyChanged:
    with output.progress("comparing with the policy in force"):
        return ask.api.plan_policy(body, managed_by=tool)


def _findings(planned: types.PolicyChanged, read: Read) -> list[str]:
    """What of a dry run is probably not meant, a sentence each, with its place in the folder; an older control does not say."""
    from gtm.documents.folders import placed

    found = planned.get("findings", ())
    return [placed(read, f"{finding.path}: {finding.message}") for finding in found]


def _warnings(planned: types.PolicyChanged, read: Read) -> list[str]:
    """All that a dry run warns of."""
    from gtm.documents.folders import placed

    return [*(placed(read, one) for one in planned.warnings), *_findings(planned, read)]


def _report(report: CheckReport) -> None:
    for problem in report.problems:
        output.say(str(problem), "red")
    for said in report.notes:
        output.say(said, "yellow")
    for warning in report.warnings:
        output.say(f"warning: {warning}", "yellow")
    for finding in report.findings:
        place = report.places.get(finding.path)
        text = str(finding) if place is None else f"{place}: {finding}"
        if finding in report.errors:
            output.say(f"error: {text}", "red")
        else:
            output.say(f"warning: {text}", "yellow")
    failed = [result for result in report.results if not result.passed]
    for result in failed:
        output.say(f"FAILED {result.label}", "red")
        output.say(f"  expected: {result.expected}")
        output.say(f"  got:      {result.got}")
        for line in result.why:
            output.say(f"    {line}")
    if report.problems:
        count = len(report.problems)
        output.say(f"{count} problem{'' if count == 1 else 's'}; no expectation was tried", "red")
        return
    if report.policy is not None:
        policy = report.policy
        counts = {"region": policy.regions, "service": policy.services, "rule": policy.residency_rules}
        sizes = [f"{len(items)} {name}{'' if len(items) == 1 else 's'}" for name, items in counts.items()]
        if report.errors:
            count = len(report.errors)
            output.say(f"{count} error{'' if count == 1 else 's'} above: {', '.join(sizes)}", "red")
        else:
            output.say(f"the policy is sound: {', '.join(sizes)}")
    passed = len(report.results) - len(failed)
    if report.results:
        output.say(f"{passed} of {len(report.results)} expectations hold", "red" if failed else "green")
    else:
        output.say("no expectations: put some into expect.yaml beside the policy")


def _report_json(report: CheckReport) -> None:
    from dataclasses import asdict

    output.print_json(
        {
            "ok": report.ok,
            "problems": [asdict(problem) for problem in report.problems],
            "warnings": list(report.warnings),
            "findings": [
                {**asdict(finding), "place": report.places.get(finding.path)} for finding in report.findings
            ],
            "expectations": [asdict(result) for result in report.results],
            "not_read": list(report.not_read),
        }
    )

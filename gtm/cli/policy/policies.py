"""`gtm check`, `plan`, `apply` and `export`: policy as a folder of YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.common.policy_folder import explained, read_whole, require_readable
from gtm.cli.policy import managed, safety

if TYPE_CHECKING:
    from gtm.cli.common.client import Client
    from gtm.documents.check import Report
    from gtm.documents.folders import Folder as Read


def _named(text: str) -> Path:
    """A path that somebody named. `gtm apply "$POLICY"` where nothing is set would apply the folder that it runs in."""
    if not text:
        raise typer.BadParameter("it is empty: name a folder, `.` for the one you are in")
    return Path(text)


Folder = Annotated[
    Path,
    typer.Argument(help="A folder of YAML and JSON files, with those below it; or one file.", parser=_named),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    for command in (check, plan, apply):
        app.command()(command)


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

    from gtm.cli.common import output
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
    if as_json:
        _report_json(report)
    else:
        _report(report)
    if not report.ok:
        raise typer.Exit(Exit.NO)


def plan(
    folder: Folder,
    *,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 if there are changes, 0 if there are none.")
    ] = False,
    managed_by: managed.ManagedBy = "",
    only_own: managed.OnlyOwn = False,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what `gtm apply` would change. Changes nothing."""
    from gtm.cli.common import changes, client, output

    body, headers, read = _request(folder, managed_by, only_own=only_own)
    planned = _plan(client.control(control_url, token), body, headers)
    output.warn(_warnings(planned, read))
    if as_json:
        output.print_json(planned)
    elif planned["changes"]:
        changes.show_changes(planned["changes"])
        _managed(planned)
        _safety(planned["safety"], folder)
        output.say(f"`gtm apply {folder}` makes these changes to revision {planned['revision']}")
    else:
        _managed(planned)
        output.say(f"no changes: revision {planned['revision']} is what {folder} says")
    if exit_code and planned["changes"]:
        raise typer.Exit(Exit.NO)


def apply(
    folder: Folder,
    *,
    yes: options.Yes = False,
    comment: options.Comment = "",
    force: safety.Force = False,
    reason: safety.Reason = "",
    managed_by: managed.ManagedBy = "",
    only_own: managed.OnlyOwn = False,
    on_managed: managed.Purpose = None,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    wait: options.Wait = True,
    timeout: options.Timeout = options.WAIT_SECONDS,
    as_json: options.AsJson = False,
) -> None:
    """Make a folder the policy: show what changes, ask, apply, and wait until the edges have it.

    What the folder does not hold is deleted. Nothing else can get between what was shown and what is applied.
    """
    from gtm.cli.common import changes, client, consent, output

    forced = safety.parameters(force=force, reason=reason, on_managed=on_managed)
    body, headers, read = _request(folder, managed_by, only_own=only_own)
    api = client.control(control_url, token)
    planned = _plan(api, body, headers)
    if not planned["changes"]:
        managed.require(planned, on_managed)
        if managed_by:  # nothing differs, and all of it is to be the tool's
            planned = api.call(
                "POST", "/v1/policy:apply", parameters=forced, body=body, headers=headers
            ).value
        output.warn(_warnings(planned, read))
        if as_json:
            output.print_json({**planned, "dry_run": False})
        else:
            output.say(f"no changes: revision {planned['revision']} is what {folder} says")
        return
    if not as_json:
        changes.show_changes(planned["changes"])
    output.warn(_findings(planned, read))
    unsafe = safety.breaches(planned["safety"])
    if unsafe and not force:
        raise CommandError(safety.refusal(planned["safety"], folder), Exit.BAD_INPUT, unsafe)
    output.warn(unsafe)
    managed.require(planned, on_managed)
    consent.require(yes=yes, as_json=as_json)
    if not yes:
        consent.confirm("Apply these changes?")
    body["comment"] = comment
    with output.progress(f"applying {folder}"):
        headers["If-Match"] = f'"{planned["revision"]}"'
        done = api.call("POST", "/v1/policy:apply", parameters=forced, body=body, headers=headers).value
    changes.report_change(api, done, wait=wait, timeout=timeout, as_json=as_json)


def _safety(judged: dict[str, Any] | None, folder: Path) -> None:
    """What the safety rules say of a change."""
    from gtm.cli.common import output

    unsafe = safety.breaches(judged)
    for text in unsafe:
        output.say(f"unsafe: {text}", "red")
    if unsafe and judged is not None:
        output.say(f"`gtm apply` would refuse this: {safety.refusal(judged, folder)}", "red")
    said = safety.numbers(judged)
    if said:
        output.say(f"safety: {said}")


def _managed(planned: dict[str, Any]) -> None:
    """What other tools manage of a change."""
    from gtm.cli.common import output

    said = managed.sentences(planned.get("managed", ()))
    for text in said:
        output.say(f"managed: {text}", "red")
    if said:
        output.say(f"`gtm apply` would refuse this: {managed.refusal()}", "red")


def _request(folder: Path, managed_by: str, *, only_own: bool) -> tuple[dict[str, Any], dict[str, str], Read]:
    """What a folder's request holds: its body, and its headers; and the folder as it was read.

    Raises:
        CommandError: the folder has problems, or the options do not go together.
    """
    if only_own and not managed_by:
        raise CommandError("--only-own needs --managed-by: whose own?")
    headers = managed.headers(managed_by)
    read = read_whole(folder, alone=not only_own)
    body: dict[str, Any] = {"policy": read.document().model_dump(mode="json")}
    if only_own:
        body["only_own"] = True
    return body, headers, read


def _plan(api: Client, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    from gtm.cli.common import output

    with output.progress("comparing with the policy in force"):
        answer = api.call("POST", "/v1/policy:plan", body=body, headers=headers)
    planned: dict[str, Any] = answer.value
    return planned


def _findings(planned: dict[str, Any], read: Read) -> list[str]:
    """What of a dry run is probably not meant, a sentence each, with its place in the folder; an older control does not say."""
    from gtm.documents.folders import placed

    found = planned.get("findings", ())
    return [placed(read, f"{finding['path']}: {finding['message']}") for finding in found]


def _warnings(planned: dict[str, Any], read: Read) -> list[str]:
    """All that a dry run warns of."""
    from gtm.documents.folders import placed

    return [*(placed(read, one) for one in planned["warnings"]), *_findings(planned, read)]


def _report(report: Report) -> None:
    from gtm.cli.common import output

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


def _report_json(report: Report) -> None:
    from dataclasses import asdict

    from gtm.cli.common import output

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

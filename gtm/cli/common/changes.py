"""Differences between policies for people, and waiting until edges have a revision."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gtm.cli.common import output
from gtm.cli.common.commands import Command
from gtm.cli.common.exits import CommandError, Exit
from gtm.core.model.kinds import label

if TYPE_CHECKING:
    from rich.text import Text

    from gtm.cli.common.client import Client
    from gtm.client import types

_MARKS = {"created": "+", "updated": "~", "deleted": "-"}
_POLL = 0.25
_LONGEST = 400


def show_changes(changes: Iterable[types.ResourceChangeSchema]) -> None:
    """What is created, updated (with each field that differs) and deleted."""
    from rich.text import Text

    console = output.out()
    counted: Counter[str] = Counter()
    for change in changes:
        action = output.plain(change.action)
        counted[action] += 1
        style = output.STYLES.get(action, "")
        console.print(
            Text.assemble(
                (f"{_MARKS.get(action, '?')} ", style),
                f"{label(output.plain(change.kind))} ",
                (output.plain(change.name), "bold"),
                f" {action}",
            ),
            soft_wrap=True,
        )
        for field in change.get("fields", ()):
            console.print(
                Text.assemble(
                    f"    {output.plain(field.path)}: ",
                    (_value(field.before), "red"),
                    " → ",
                    (_value(field.after), "green"),
                ),
                soft_wrap=True,
            )
    if counted:
        output.say(", ".join(f"{counted[action]} {action}" for action in _MARKS if counted[action]))


def wait_until_in_sync(client: Client, sync: types.SyncSchema, timeout: float) -> types.SyncSchema:
    """Wait until every live edge has a revision. Without any live edge there is nothing to wait for.

    Silent edges are not waited for: they may be gone for ever. What they had is said at the end.

    Args:
        client: the control API.
        sync: what the change answered.
        timeout: seconds.

    Returns:
        The last state of affairs; PENDING if the time ran out.
    """
    revision = sync.revision
    deadline = time.monotonic() + timeout
    with output.progress(f"revision {revision} on its way to the edges", _edges(sync)) as bar:
        while sync.state == "PENDING" and _edges(sync) and time.monotonic() < deadline:
            bar.update(bar.task_ids[0], completed=len(sync.in_sync), total=_edges(sync))
            time.sleep(_POLL)
            try:
                latest = client.get_status().sync
            except CommandError as error:
                if error.code is not Exit.UNREACHABLE:
                    raise
                continue  # the change stands; control may be back within the time
            # A later revision in force everywhere holds, or has replaced, this one.
            sync = latest if latest.revision >= revision else sync
    return sync


def _edges(sync: types.SyncSchema) -> int:
    return len(sync.in_sync) + len(sync.pending)


def sync_words(sync: types.SyncSchema) -> Text:
    """How far a revision has got, in a line."""
    from rich.text import Text

    if sync.state != "PENDING":
        edges = _edges(sync)
        style = "green" if sync.state == "IN_SYNC" else "yellow"
        found = Text.assemble((sync.state, style), f" on {edges} edge{'' if edges == 1 else 's'}")
    elif not _edges(sync):
        found = Text.assemble(("PENDING", "yellow"), ": no edge is connected; it takes force when one is")
    else:
        waiting = ", ".join(output.plain(name) for name in sync.pending)
        found = Text.assemble(("PENDING", "yellow"), f": waiting for {waiting}")
    for silent in sync.silent:
        name, since = output.plain(silent.name), output.when(silent.since)
        found.append(f"; {name} is silent since {since} UTC, with revision {silent.revision}", "yellow")
    if sync.get("unsaved"):
        names = ", ".join(output.plain(name) for name in sync.unsaved)
        found.append(
            f"; the disk of {names} refuses it, so that after a restart without control an older one would be followed",
            "yellow",
        )
    if sync.get("lost"):
        names = ", ".join(output.plain(name) for name in sync.lost)
        found.append(
            f"; {names} keeps a revision that the database has lost, and is not sent this one (gtm revisions accept-older)",
            "yellow",
        )
    if any(silent.revision < sync.revision for silent in sync.silent):
        found.append(
            " (it may go on answering by that; `gtm edges forget NAME` if it is gone for good)", "yellow"
        )
    return found


def report_change(ask: Command, done: types.PolicyChanged | types.ResourceChangedRegionDocument) -> None:
    """The end of every command that changed the policy: wait for the edges, and say where it stands.

    Args:
        ask: the command.
        done: what the change answered.

    Raises:
        CommandError: some edge still lacked the revision when the time was up (exit code 1; the change stands).
    """
    sync = wait_until_in_sync(ask.api, done.sync, ask.timeout) if ask.wait else done.sync
    output.warn(done.get("warnings", ()))
    if not ask.printed_json({**done, "sync": sync}):
        output.say(output.text(f"revision {done.revision}: ") + sync_words(sync))
    if ask.wait and sync.state == "PENDING" and sync.pending:
        message = (
            f"revision {done.revision} is in force at control, but not at every edge after {ask.timeout:g} s; "
            "`gtm status` tells when it is"
        )
        raise CommandError(message, Exit.NO, tuple(f"waiting for edge {name}" for name in sync.pending))


def _value(value: Any) -> str:
    text = "(none)" if value is None else output.plain(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

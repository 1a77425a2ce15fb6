"""`gtm export --for`: where requests may go, as files that other makes of proxies read, written once or kept up to date.

Laws:
  1. A file is the old one or the new one, never half of either, and is written only where it says something new, or somebody else has changed it.
  2. Without control the files stay as they are, until a rule that is known would make them another: then they name no region.
  3. What is gone from the policy leaves a file that names no region.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from gtm.cli.common import output
from gtm.cli.common.exits import CommandError, Exit
from gtm.core.model.lists import ListedRegion
from gtm.core.model.references import meant
from gtm.core.model.regions import Endpoint
from gtm.documents.lists import ListFormat, file_name, text_of
from gtm.files import FileState, state_of, write_whole
from gtm.runtime.process.clocks import boot_time

if TYPE_CHECKING:
    from gtm.cli.common.commands import Command
    from gtm.client.generated import control_types as types

EVERY = 0.5
"""Seconds between two questions to control."""
TIMEOUT = 2.0
"""Seconds that control may take with an answer."""
_MOST = 60.0
"""Seconds that the command may take that has proxies read their files."""


@dataclass(frozen=True, slots=True)
class WantedLists:
    """What is to be listed, and where.

    `service` None: all; `client_country` None: clients of all places; `data_classes` empty: each, and all together; `then` is the
    command to run after a change.
    """

    form: ListFormat
    folder: Path
    service: str | None = None
    client_country: str | None = None
    data_classes: tuple[str, ...] = ()
    then: str | None = None


@dataclass(slots=True)
class ListFiles:
    """The files of a command.

    Args:
        wanted: what they are to say.
        clock: seconds, going on at an even pace, while the machine sleeps, too.
    """

    wanted: WantedLists
    clock: Callable[[], float] = boot_time
    _texts: dict[str, str] = field(default_factory=dict)
    """List → what its file says."""
    _states: dict[str, FileState | None] = field(default_factory=dict)
    """List → its file, as this command has left it."""
    _until: dict[str, float] = field(default_factory=dict)
    """List → the time by `clock` from which it does not hold any more unless control says so."""
    _unread: bool = False
    """Proxies have not been told of a change."""

    def take(self, answer: types.ListsView, asked: float) -> None:
        """Write what control says.

        Args:
            answer: what it said.
            asked: when it was asked, by `clock`.

        Raises:
            CommandError: a file cannot be written.
        """
        found = {
            one.service if one.data_class is None else f"{one.service}.{one.data_class}": one
            for one in answer.lists
            if not self.wanted.data_classes or one.data_class in self.wanted.data_classes
        }
        for name in [*found, *(self._texts.keys() - found.keys())]:
            one = found.get(name)
            self._put(name, () if one is None else tuple(map(_region, one.regions)))
            left = None if one is None else one.holds_for
            self._until[name] = inf if left is None else asked + left

    def gone(self) -> None:
        """Have files of the service name no region that are left from before it was gone from the policy.

        Raises:
            CommandError: a file cannot be written.
        """
        ending, service = file_name(self.wanted.form, ""), self.wanted.service
        for path in sorted(self.wanted.folder.glob(f"*{ending}")):
            name = path.name.removesuffix(ending)
            of, _, data_class = name.partition(".")
            ours = of == service and (not self.wanted.data_classes or data_class in self.wanted.data_classes)
            if ours and path.read_text(errors="replace") != text_of(self.wanted.form, name, ()).text:
                self._put(name, ())

    def expire(self) -> None:
        """Have files name no region that control would have to confirm by now."""
        for name, until in self._until.items():
            if self.clock() >= until and self._put(name, ()):
                output.warn(
                    [
                        f"{name}: what the law says may have changed, and control cannot be asked: no region is listed"
                    ]
                )

    def tell(self) -> None:
        """Run the command that has proxies read the files, if one changed; again the next time, if it fails."""
        then = self.wanted.then
        if not self._unread or then is None:
            self._unread = False
            return
        try:
            done = subprocess.run(
                shlex.split(then), stdin=subprocess.DEVNULL, stdout=2, check=False, timeout=_MOST
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            why = str(error)
        else:
            self._unread = done.returncode != 0
            why = f"it ended with {done.returncode}"
        self._states = {name: self._state(name) for name in self._texts}  # it may do with them what it likes
        if self._unread:
            output.warn([f"--then: `{then}` failed, and is tried again: {why}"])

    @property
    def failed(self) -> bool:
        """Whether proxies have not been told of the files yet."""
        return self._unread

    def _path(self, name: str) -> Path:
        return self.wanted.folder / file_name(self.wanted.form, name)

    def _state(self, name: str) -> FileState | None:
        """What a list's file is now; to whom it belongs is no matter."""
        found = state_of(self._path(name))
        return None if found is None else (*found[:4], 0)

    def _put(self, name: str, regions: Sequence[ListedRegion]) -> bool:
        """Write a list, if its file would say something else, or does; whether it would."""
        text, left_out = text_of(self.wanted.form, name, regions)
        if self._texts.get(name) == text and self._state(name) == self._states[name]:
            return False
        path = self._path(name)
        try:
            self.wanted.folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode(), mode=0o666)
        except OSError as error:
            message = f"cannot write `{path}`: {(error.strerror or str(error)).lower()}"
            raise CommandError(message, Exit.CANNOT_RUN) from error
        self._texts[name], self._states[name], self._unread = text, self._state(name), True
        output.say(f"{path}: {_words(regions)}")
        output.warn(
            f"{name}: {host} is left out: it has no address, and {self.wanted.form.value} takes no names"
            for host in left_out
        )
        return True


def write(command: Command, wanted: WantedLists, *, watch: bool) -> None:
    """Write the lists; with `watch` keep them up to date until the command is ended.

    Args:
        command: what it was given, as to whom it asks.
        wanted: what is to be listed.
        watch: go on.

    Raises:
        CommandError: control cannot be asked the first time, does not know the service or a data class, or a file cannot be written.
    """
    from gtm.cli.common import client

    api = client.control(command.control_url, command.token, timeout=TIMEOUT)

    def ask() -> types.ListsView:
        return api.get_lists(service=wanted.service, country=wanted.client_country)

    files = ListFiles(wanted)
    asked = files.clock()
    answer = ask()
    if wanted.service is not None and not answer.lists:
        files.gone()
        files.tell()
    _require_known(answer, wanted)
    files.take(answer, asked)
    files.tell()
    if files.failed and not watch:
        raise CommandError("the files are written, and --then has failed", Exit.NO)
    lost = False
    while watch:
        time.sleep(max(0.0, EVERY - (files.clock() - asked)))
        asked = files.clock()
        try:
            lost = _again(ask, files, asked, lost=lost)
        except CommandError as error:  # of the disk
            output.warn([f"{error}: it is tried again"])
        files.tell()


def _again(ask: Callable[[], types.ListsView], files: ListFiles, asked: float, *, lost: bool) -> bool:
    """Ask once more; whether control cannot be asked now. `lost`: it could not the time before.

    Raises:
        CommandError: a file cannot be written.
    """
    try:
        answer = ask()
    except CommandError as error:
        if not lost:
            output.warn([f"{error}: the files stay as they are"])
        files.expire()
        return True
    if lost:
        output.say("control answers again")
    files.take(answer, asked)
    return False


def _require_known(answer: types.ListsView, wanted: WantedLists) -> None:
    """Say which name the policy does not know."""
    lists = answer.lists
    if wanted.service is not None and not lists:
        raise CommandError(f"there is no service `{wanted.service}`: `gtm services list` has all")
    known = {one.data_class for one in lists if one.data_class is not None}
    for name in wanted.data_classes:
        if lists and name not in known:
            raise CommandError(f"there is no data class `{name}`{meant(name, known)}")


def _region(told: types.ListedRegionSchema) -> ListedRegion:
    endpoints = tuple(Endpoint(one.url, tuple(one.ipv4), tuple(one.ipv6)) for one in told.endpoints)
    return ListedRegion(told.region, told.share, told.standby, endpoints)


def _words(regions: Sequence[ListedRegion]) -> str:
    """Regions with their shares."""
    named = [
        f"{one.region} {one.share:.0%}" if one.share > 0 else f"{one.region} stands in" for one in regions
    ]
    return ", ".join(named) or "no region"

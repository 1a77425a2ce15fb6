"""Options of commands that run servers, made of the fields of what the servers are told (`gtm.options`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gtm.cli.common.exits import CommandError
from gtm.cli.common.options import declared, take
from gtm.options import Declared, options, values

_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True)
class Given:
    """What a person gave, by the options' names."""

    values: Mapping[str, Any]

    def settings(self, kind: type[_Settings], **more: Any) -> _Settings:
        """Settings of these options; of others the defaults.

        Args:
            kind: their class.
            more: fields that no option sets.

        Raises:
            CommandError: what was given cannot be.
        """

        def given(one: Declared) -> Any:
            return self.values.get(one.name, one.option.default)

        try:
            return kind(**values(kind, given), **more)
        except ValueError as error:
            raise CommandError(str(error)) from error


def with_options(
    *kinds: type, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of settings besides its own; it gets them as its first argument.

    Args:
        kinds: classes of settings. What is in several is one option.
        without: names of options that the command does not have.
    """
    offered = {one.name: one for kind in kinds for one in options(kind) if one.name not in without}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(**told: Any) -> None:
            from gtm.runtime.process import signals

            signals.spare()  # from here on, whatever the server is at
            given = Given({name: told.pop(name) for name in offered})
            function(given, **told)

        take(command, function, {name: (declared(one), one.option.default) for name, one in offered.items()})
        return command

    return decorate

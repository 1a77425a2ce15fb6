"""Options that several commands share: each is a flag and a GTM_* variable (those of servers: `gtm.settings`).

Also durations as people type them (`90s`, `24h`, `7d`), and consent: asked for at a terminal, required as `--yes` everywhere else.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gtm import secret
from gtm.cli.common.exits import CommandError, Exit
from gtm.options import Declared, options
from gtm.settings import DEFAULT_CONTROL_PORT, DEFAULT_EDGE_PORT, ControlSettings, EdgeSettings


def declared(one: Declared) -> Any:
    """The type of a command's parameter that is an option of settings."""
    given = one.option
    return Annotated[
        given.takes,
        typer.Option(help=given.help, envvar=one.variable, min=given.minimum, max=given.maximum),
    ]


def take(
    command: Callable[..., None], function: Callable[..., None], more: Mapping[str, tuple[Any, Any]]
) -> None:
    """Let a command take what a function takes behind its first argument, and further options.

    Args:
        command: calls the function.
        function: has the command's name, help and own arguments.
        more: options by name, each its annotation and its default.
    """
    own = [*inspect.signature(function, eval_str=True).parameters.values()][1:]
    parameters = [
        *own,
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in more.items()
        ),
    ]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads


_OF_SERVERS = {one.name: one for kind in (ControlSettings, EdgeSettings) for one in options(kind)}


def _option(name: str, callback: Callable[[str | None], str | None] | None = None) -> Any:
    one = _OF_SERVERS[name].option
    return typer.Option(help=one.help, envvar=_OF_SERVERS[name].variable, callback=callback)


def _secret(name: str, kind: secret.SecretKind, code: Exit) -> Callable[[str | None], str | None]:
    """Reads what an option, its variable or the file that `NAME_FILE` names has of a secret."""

    def read(given: str | None) -> str | None:
        try:
            return secret.given(name, given, os.environ.get(f"{name}_FILE"), kind)
        except secret.SecretError as error:
            raise CommandError(str(error), code) from None

    return read


DataDir = Annotated[Path, _option("data_dir")]
DatabaseUrl = Annotated[
    str | None, _option("database_url", _secret("GTM_DATABASE_URL", secret.URL, Exit.BAD_INPUT))
]
GeoipDb = Annotated[Path | None, _option("geoip_db")]
GeoipOverrides = Annotated[Path | None, _option("geoip_overrides")]
GeoipAnonymousDb = Annotated[Path | None, _option("geoip_anonymous_db")]
InsecureControl = Annotated[
    bool,
    typer.Option(
        "--insecure-control",
        help="Send the token to another machine over http, where whoever is on the way reads it.",
        envvar="GTM_INSECURE_CONTROL",
    ),
]
ControlUrl = Annotated[str, typer.Option("--control", help="The control API.", envvar="GTM_CONTROL_URL")]
Token = Annotated[
    str | None,
    typer.Option(
        help="Bearer token (better in GTM_TOKEN, or in a file that GTM_TOKEN_FILE names, than in a shell history).",
        envvar="GTM_TOKEN",
        callback=_secret("GTM_TOKEN", secret.TOKEN, Exit.NOT_ALLOWED),
    ),
]
JSON = "Print JSON for scripts."
AsJson = Annotated[bool, typer.Option("--json", help=JSON)]
EdgeUrl = Annotated[str, typer.Option("--edge", help="An edge's HTTP.", envvar="GTM_EDGE_URL")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Comment = Annotated[str, typer.Option(help="Why; kept with the revision.")]
Wait = Annotated[bool, typer.Option(help="Wait until every live edge has the change.")]
Timeout = Annotated[float, typer.Option(help="Longest wait for the edges, in seconds.", min=0, max=3600)]

LOOPBACK = "127.0.0.1"
CONTROL = f"http://{LOOPBACK}:{DEFAULT_CONTROL_PORT}"
EDGE = f"http://{LOOPBACK}:{DEFAULT_EDGE_PORT}"
DATA_DIR: Path = _OF_SERVERS["data_dir"].option.default
WAIT_SECONDS = 60.0


def check_in_the_clear(url: str, *, insecure: bool, option: str = "--control") -> None:
    """Keep a token from being sent to another machine in the clear.

    Raises:
        CommandError: it would be, and nobody said that it may.
    """
    from gtm.transport import in_the_clear

    if not insecure and in_the_clear(url):
        raise CommandError(
            f"{option}: `{url}` is http to another machine, which would send the token in the clear: put TLS in front of "
            "it and use https, or set GTM_INSECURE_CONTROL=true where the network between is your own",
            Exit.NOT_ALLOWED,
        )


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})([smhdw])")
_LONGEST = 3660 * 86_400


def duration_seconds(option: str, text: str) -> float:
    """A duration in seconds.

    Raises:
        CommandError: it is none, or none that is longer than nothing and shorter than ten years.
    """
    found = _DURATION.fullmatch(text.strip())
    seconds = int(found[1]) * SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST:
        raise CommandError(f"{option}: `{text}` is not a number with s, m, h, d or w, such as 24h")
    return float(seconds)


def require_consent(*, yes: bool, as_json: bool) -> None:
    """Fail early where nobody could be asked.

    Raises:
        CommandError: no `--yes`, and no terminal to ask at.
    """
    if not yes and (as_json or not sys.stdin.isatty()):
        where = "with --json" if as_json else "without a terminal"
        raise CommandError(f"nobody can be asked {where}: give --yes to make the change; nothing was changed")


def confirm(question: str) -> None:
    """Ask on standard error.

    Raises:
        CommandError: the answer is anything but yes (exit code 1).
    """
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was changed", Exit.NO)

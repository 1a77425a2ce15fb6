"""`gtm token`: make, list, replace and revoke bearer tokens, through control or directly in the database."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import DIRECT, Command, asks
from gtm.cli.common.exits import CommandError
from gtm.cli.common.options import SECONDS, duration_seconds
from gtm.cli.common.output import moment
from gtm.core.model.access import Role

if TYPE_CHECKING:
    from gtm.client.objects import JsonObject
    from gtm.control.live.tokens import NewToken
    from gtm.storage.history.audit import Actor
    from gtm.storage.session import Database
    from gtm.storage.tokens import Token

app = typer.Typer(no_args_is_help=True)

_Direct = Annotated[
    bool,
    typer.Option(
        "--direct",
        help="Work on the database itself (GTM_DATABASE_URL, or the embedded one in --data-dir); needs no token.",
    ),
]
_Owner = Annotated[
    str | None,
    typer.Option(
        help="The person or automation that stands behind it; people as they are called when they sign in (ann@example.com). "
        "Default: the owner of the token that makes it; of a rotated one, the owner that it has."
    ),
]
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_ZERO = re.compile(r"0+[smhdw]?")


@asks(app, also=DIRECT)
def create(
    ask: Command,
    name: str,
    *,
    role: Annotated[
        Role,
        typer.Option(
            help="viewer reads, operator changes policy, fence-admin also opens fences, admin also makes tokens; edge is for "
            "edges, balancer for regions' balancers, reporter for load reports, acme for challenges of certificate authorities."
        ),
    ],
    expires: Annotated[
        str | None,
        typer.Option(
            help="After which time it ends: a number and s, m, h, d or w (30d), or a moment (RFC 3339)."
        ),
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option(
            help="Of role edge: the edge that it is for, or a pattern (fra-*). Edges of one token have one vote on health. "
            "Default: the edge of the token's own name."
        ),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option(
            help="Of role balancer: the region that it is for, or a pattern (eu-*). Of role reporter the same, if it is not to "
            "report on any."
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            help="Of role acme: the name for whose certificates it is, or a pattern (*.example.com, which includes example.com)."
        ),
    ] = None,
    owner: _Owner = None,
    direct: _Direct = False,
) -> None:
    """Make a token. It is printed this once, alone on standard output, and stored nowhere."""
    expires_at = None if expires is None else _moment(expires, datetime.now(UTC))
    bound: dict[str, Any] = {"edges": edges, "regions": regions, "names": names, "owner": owner}
    if direct:
        from gtm.control.live import tokens
        from gtm.documents.fields import NAME_PATTERN, PATTERN_WORDS

        if not re.fullmatch(NAME_PATTERN, name):
            raise CommandError(f"name: `{name}` {PATTERN_WORDS[NAME_PATTERN]}")

        by = _direct_actor()
        made: Any = _with_database(
            ask,
            lambda found: tokens.create(
                found, name, role, by=by, now=datetime.now(UTC), expires_at=expires_at, **bound
            ),
        )
    else:
        body: Any = {"name": name, "role": role.value, "expires_at": expires_at and _rfc3339(expires_at)}
        body |= {key: value for key, value in bound.items() if value is not None}
        made = ask.api.create_token(body)
    _show(ask, made)


@asks(app, also=DIRECT)
def rotate(
    ask: Command,
    name: str,
    *,
    grace: Annotated[
        str,
        typer.Option(
            help="How long the old text works yet: a number and s, m, h or d; 0s: no longer (it has leaked)."
        ),
    ] = "1h",
    owner: _Owner = None,
    direct: _Direct = False,
) -> None:
    """Replace a token's text. Name, role, expiry and owner stay; the old text works until the grace is over."""
    seconds = 0.0 if _ZERO.fullmatch(grace.strip()) else duration_seconds("--grace", grace)
    if direct:
        from gtm.control.live import tokens

        by, after = _direct_actor(), timedelta(seconds=seconds)
        made: Any = _with_database(
            ask,
            lambda found: tokens.rotate(found, name, by=by, now=datetime.now(UTC), grace=after, owner=owner),
        )
    else:
        body: Any = {"grace_seconds": seconds, **({} if owner is None else {"owner": owner})}
        made = ask.api.rotate_token(name, body)
    _show(ask, made)
    if not ask.as_json:
        ends = output.when(datetime.now(UTC).timestamp() + seconds)
        output.note(f"the text before it {f'works until {ends} UTC' if seconds else 'has ended'}")


def _show(ask: Command, made: Any) -> None:
    """A new token's text, alone on standard output."""
    if ask.printed_json(made):
        return
    until = f"until {output.when(made.expires_at)} UTC" if made.expires_at else "until it is revoked"
    names = _bound(made)
    kind = f"{made.role} of {names}" if names else made.role
    output.note(f"token {made.name} ({kind}, id {made.id}), good {until}; shown only this once:")
    typer.echo(made.token)


@asks(app, "list", also=DIRECT)
def list_(ask: Command, *, direct: _Direct = False) -> None:
    """List every token, revoked and expired ones included. Their texts are known to nobody."""
    found: Iterable[Any]
    if direct:
        from gtm.control.live import tokens

        found = _with_database(ask, tokens.list_all)
    else:
        found = ask.api.list_tokens()
    now = datetime.now(UTC)
    columns: dict[str, output.Column] = {
        "name": "name",
        "id": "id",
        "role": "role",
        "for": _bound,
        "owner": lambda one: one.get("owner") or "unknown",
        "state": lambda one: output.styled(_state(one, now)),
        "created (UTC)": moment("created_at"),
        "ends (UTC)": lambda one: output.when(_ends(one)) or "never",
    }
    ask.table(found, columns, empty="there are no tokens")


@asks(app, also=DIRECT)
def revoke(
    ask: Command,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id or name.")],
    *,
    direct: _Direct = False,
) -> None:
    """End a token for good: the one with this id, or all of this name. The name is free again."""
    if direct:
        from gtm.control.live import tokens

        by = _direct_actor()
        ended: Any = _with_database(ask, lambda found: tokens.revoke(found, token_id, by=by))
    else:
        ended = ask.api.revoke_token(token_id)
    if not ask.printed_json(ended):
        output.say(f"token {ended.name} ({ended.role}, id {ended.id}) is revoked")


def _bound(item: JsonObject) -> str:
    """The edges, regions or names that a token is bound to."""
    return str(item.get("edges") or item.get("regions") or item.get("names") or "")


def _direct_actor() -> Actor:
    """Who works past control, as the audit log has them: the user of this machine."""
    from getpass import getuser

    from gtm.storage.history.audit import Actor, Via

    try:
        name = getuser()
    except (KeyError, OSError):  # a user without a name (Python ≥ 3.13: OSError)
        name = "somebody"
    return Actor(name, None, Via.DIRECT)


def _with_database(
    ask: Command, work: Callable[[Database], Awaitable[Token | NewToken | list[Token]]]
) -> Any:
    """What is done in the database itself, as the control API answers it."""
    import asyncio

    from gtm.cli.common.database import database, require_current_schema
    from gtm.control.errors import ControlError
    from gtm.storage.session import Database
    from gtm.storage.tokens import Token

    async def run(found: str) -> Token | NewToken | list[Token]:
        session = Database(found)
        try:
            return await work(session)
        finally:
            await session.dispose()

    with database(ask.database_url, ask.data_dir) as found:
        require_current_schema(found)
        try:
            done = asyncio.run(run(found))
        except ControlError as error:
            raise CommandError(error.detail, problems=tuple(map(str, error.problems))) from error
    if isinstance(done, list):
        return [_view(one) for one in done]
    return _view(done) if isinstance(done, Token) else _view(done.token, token=done.text)


def _view(token: Token, /, **more: str) -> JsonObject:
    """A token as the control API shows it."""
    from gtm.client.objects import JsonObject

    moments = {name: getattr(token, name) for name in ("created_at", "expires_at", "revoked_at")}
    return JsonObject(
        id=token.id,
        name=token.name,
        role=token.role.value,
        edges=token.edges,
        regions=token.regions,
        names=token.names,
        owner=token.owner,
        makers=list(token.makers),
        **{name: moment and _rfc3339(moment) for name, moment in moments.items()},
        **more,
    )


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _ends(item: JsonObject) -> str | None:
    """When a token ends, or ended; None: never."""
    ends = [str(item[name]) for name in ("expires_at", "revoked_at") if item[name]]
    return min(ends, key=datetime.fromisoformat, default=None)


def _state(item: JsonObject, now: datetime) -> str:
    revoked = item.revoked_at
    if revoked:
        return "revoked" if datetime.fromisoformat(revoked) <= now else "replaced"
    expires = item.expires_at
    return "expired" if expires and datetime.fromisoformat(expires) <= now else "active"


def _moment(text: str, now: datetime) -> datetime:
    """When a token ends.

    Raises:
        CommandError: neither a duration nor a moment with its time zone, or out of the calendar.
    """
    duration = _DURATION.fullmatch(text.strip())
    try:
        if duration:
            return now + timedelta(seconds=int(duration[1]) * SECONDS[duration[2]])
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CommandError(
            f"--expires: `{text}` is neither a number with s, m, h, d or w (such as 30d) nor a moment with its time "
            "zone (such as 2030-01-31T12:00:00Z)"
        )
    return moment

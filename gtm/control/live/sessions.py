"""People who are signed in at the dashboard, and links that sign somebody in.

Laws:
  1. A session's secret is shown once, in a cookie; at rest there is its SHA-256. So it is with a link's.
  2. A session ends by itself, when somebody ends it, and with the token that it was opened with. It may do what that token may do now.
  3. Sessions that are known go on while the database is away; then none begins.
  4. A link works once, and not for long. It is known to the control process that made it alone. To look at one uses up nothing.
  5. Nobody has more than so many sessions: with one more, the one ends that was used longest ago. So nobody crowds others out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from gtm.control.errors import Conflict, Forbidden, NotFound
from gtm.core.model.access import Role, permits
from gtm.storage.history.audit import Actor, Via
from gtm.storage.session import Database
from gtm.storage.sessions import Session

LASTS = timedelta(hours=12)
"""How long somebody stays signed in."""
NOTED = timedelta(minutes=1)
"""How exactly it is known when a session was used last."""
MOST_SESSIONS = 20
"""Browsers in which one person is signed in at once."""
LINK_LASTS = 300.0
"""Seconds for which a link may be followed."""
MOST_LINKS = 1000
"""Links that are open at once."""
_AGENT = 200


@dataclass(frozen=True, slots=True)
class Person:
    """Who is to be signed in: what they are called, may do, and the SHA-256 in hex of the token that says so (empty: there is none).

    `account` is theirs at an identity provider, if one has said who they are now.
    """

    name: str
    role: Role
    token: str = ""
    account: str | None = None


def digest(secret: str) -> bytes:
    """What is stored of a secret."""
    return sha256(secret.encode(errors="replace")).digest()


async def begin(
    database: Database, who: Person, agent: str, now: datetime, how: str = "token"
) -> tuple[Session, str]:
    """Sign somebody in.

    Args:
        database: where sessions are.
        who: is signed in.
        agent: what the browser calls itself.
        now: the time of day.
        how: by what, in words.

    Returns:
        The session, and its secret.

    Raises:
        StorageUnavailable: the database cannot be reached.
    """
    secret = secrets.token_urlsafe(32)
    shown = "".join(char for char in agent if char.isprintable())[:_AGENT]
    session = Session(
        secrets.token_hex(8), digest(secret), who.name, who.role, who.token, shown, now, now, now + LASTS
    )
    async with database.transaction() as transaction:
        by = Actor(who.name, who.role, Via.DASHBOARD)
        for one in await transaction.sessions.end_oldest(who.name, MOST_SESSIONS - 1):
            words = f"of {one.name}, for another: nobody is signed in more than {MOST_SESSIONS} times"
            await transaction.audit.add(by, "session.end", f"session {one.id}", detail=words)
        await transaction.sessions.add(session)
        if who.account is not None:
            await transaction.accounts.seen(who.account, who.name)
        detail = f"by {how}; browser {shown}" if shown else f"by {how}"
        await transaction.audit.add(by, "session.begin", f"session {session.id}", detail=detail)
    return session, secret


async def seen(database: Database, session: Session, now: datetime) -> None:
    """A session was used.

    Raises:
        StorageUnavailable: the database cannot be reached.
    """
    async with database.transaction() as transaction:
        await transaction.sessions.seen({session.id: now})


async def end(database: Database, session: str, *, by: Actor) -> None:
    """Sign one browser out: one's own or, as an admin, anybody's.

    Raises:
        NotFound: there is no such session.
        Forbidden: it is somebody else's, and goes on.
    """
    async with database.transaction() as transaction:
        ended = await transaction.sessions.end(id_=session)
        for one in ended:
            if one.name != by.name and (by.role is None or not permits(by.role, Role.ADMIN)):
                raise Forbidden("this session is somebody else's: ending it needs a token of role `admin`")
            await transaction.audit.add(by, "session.end", f"session {one.id}", detail=f"of {one.name}")
    if not ended:
        raise NotFound(f"there is no session `{session}`: it may have ended")


async def end_all(database: Database, name: str, *, by: Actor) -> int:
    """Sign somebody out everywhere; how many sessions that ended."""
    async with database.transaction() as transaction:
        ended = len(await transaction.sessions.end(name=name))
        if ended:
            detail = f"{ended} session{'' if ended == 1 else 's'}"
            await transaction.audit.add(by, "session.end_all", f"sessions of {name}", detail=detail)
    return ended


class SignInLinks:
    """Links that sign somebody in once.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._open: dict[bytes, tuple[float, Person]] = {}

    def make(self, who: Person, secret: str | None = None) -> str:
        """The secret of a new one; a given one, if it was told to somebody already.

        Raises:
            Conflict: too many are open.
        """
        self._forget()
        if len(self._open) >= MOST_LINKS:
            raise Conflict(
                f"{MOST_LINKS} sign-in links are open: each lasts {LINK_LASTS:.0f} seconds, try again then"
            )
        secret = secret or secrets.token_urlsafe(24)
        self._open[digest(secret)] = self.clock() + LINK_LASTS, who
        return secret

    def look(self, secret: str) -> Person | None:
        """Whom it would sign in; None: nobody, any more."""
        self._forget()
        found = self._open.get(digest(secret))
        return None if found is None else found[1]

    def follow(self, secret: str) -> Person | None:
        """Whom it signs in, once; None: nobody, any more."""
        self._forget()
        found = self._open.pop(digest(secret), None)
        return None if found is None else found[1]

    def _forget(self) -> None:
        now = self.clock()
        self._open = {one: (ends, who) for one, (ends, who) in self._open.items() if ends > now}

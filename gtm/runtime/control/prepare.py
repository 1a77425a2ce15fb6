"""What a control tier needs before it serves: a migrated database, a first admin token, and perhaps a policy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from gtm.control.live import tokens
from gtm.control.policy import changes as policies
from gtm.core.model.access import Role
from gtm.core.model.policy import Policy
from gtm.documents.parts import DraftDocument
from gtm.documents.schema import PolicyDocument
from gtm.files import write_whole
from gtm.settings import LOCAL_EDGE
from gtm.storage import migrate
from gtm.storage.errors import DatabaseUnfit, StorageUnavailable
from gtm.storage.history.audit import CONTROL
from gtm.storage.session import Database

# --- The first admin token, until somebody has seen it: a start that made it may be ended at any moment before it shows it. ---
#
# Law: it is on disk before it is in the database, and stays there until it has been shown. So none counts that nobody has seen.


class FirstToken:
    """The file `first-admin-token` of a data directory, which nobody but its owner may read.

    Args:
        data_dir: the data directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "first-admin-token"

    def keep(self, text: str) -> None:
        """Keep the text of a token that is about to count.

        Raises:
            OSError: the disk refuses.
        """
        write_whole(self._path, f"{text}\n".encode())

    @property
    def text(self) -> str | None:
        """What is kept; it may never have come to count. None: nothing.

        Raises:
            OSError: it cannot be read.
        """
        try:
            return self._path.read_text(errors="replace").strip()
        except FileNotFoundError:
            return None

    def forget(self) -> None:
        """It has been shown, or counts no more.

        Raises:
            OSError: the disk refuses.
        """
        self._path.unlink(missing_ok=True)


# --- What a control tier needs before it serves: a migrated database, a first admin token, and perhaps a policy. ---


logger = logging.getLogger(__name__)

_ATTEMPTS = 15
_PAUSE = 2.0


async def prepare(
    url: str,
    *,
    first: FirstToken | None = None,
    edge_token: str | None = None,
    balancer_tokens: Mapping[str, str] | None = None,
    policy: Callable[[Policy], Policy] | None = None,
    comment: str = "",
) -> str | None:
    """Make a database ready. The first admin token, the first time, and then until it was shown, where it is kept; else None.

    Args:
        url: a Postgres URL.
        first: where the first admin token is kept until it has been shown; whoever shows it then has it forgotten.
        edge_token: the text of a token for the edge started beside control, in place of the last such.
        balancer_tokens: likewise, of tokens for the demo world's balancers, by their region.
        policy: makes of the policy in force (without regions: there is none yet) the one that is to be.
        comment: kept with the revision, if that changes the policy.

    Raises:
        DatabaseUnfit: the database has to be changed, or the URL.
        StorageUnavailable: the database stays unreachable (half a minute of tries).
        SchemaError: the database was migrated by a newer gtm.
        OSError: the first admin token cannot be kept; there is none then.
    """
    await _migrated(url)
    database = Database(url)
    try:
        admin_token = await _first_admin(database, first)
        if edge_token is not None:
            await tokens.install(database, "serve-edge", Role.EDGE, edge_token, edges=LOCAL_EDGE)
        for region, text in (balancer_tokens or {}).items():
            await tokens.install(database, f"serve-demo-{region}", Role.BALANCER, text, regions=region)
        if policy is not None:
            current, _ = await policies.current_policy(database)
            wanted = policy(current)
            if wanted != current:
                document = PolicyDocument.of(wanted)
                draft = DraftDocument(policy=document)
                await policies.apply(database, draft, policies.Intent(CONTROL, comment))
    finally:
        await database.dispose()
    return admin_token


async def _first_admin(database: Database, first: FirstToken | None) -> str | None:
    """The first admin token if nobody has seen it: made now, or by a start that was ended before it could show it."""
    made = await (tokens.bootstrap(database) if first is None else tokens.bootstrap(database, first.keep))
    if made is not None or first is None:
        return None if made is None else made.text
    kept = first.text
    if kept is not None and not await tokens.counts(database, kept, datetime.now(UTC)):
        first.forget()  # it was revoked, or is another database's
        return None
    return kept


async def _migrated(url: str) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            await asyncio.to_thread(migrate.upgrade, url)
        except DatabaseUnfit:
            raise  # by waiting nothing gets better
        except StorageUnavailable as error:
            if attempt == _ATTEMPTS:
                raise
            logger.warning("waiting for the database: %s", error)
            await asyncio.sleep(_PAUSE)
        else:
            return

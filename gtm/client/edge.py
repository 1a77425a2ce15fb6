"""One edge, as programs ask it."""

from __future__ import annotations

from gtm.client.generated.edge_methods import EdgeMethods
from gtm.client.sessions import AsyncSession, Session


class Edge(EdgeMethods, Session):
    """One edge's HTTP. A context manager; threads may share it.

    Args:
        url: the edge's base, http or https.
        token: needed to ask about others than yourself; None: none.
        options: `Options`.

    Raises:
        UsageError: one of them cannot be.
    """


class AsyncEdge(EdgeMethods, AsyncSession):
    """One edge's HTTP, for asyncio. Arguments are those of `Edge`."""

"""Sessions send calls: one for threads, one for asyncio. Both do the same."""

from __future__ import annotations

from gtm.client.sessions.asynchronous import AsyncSession
from gtm.client.sessions.base import Options, from_environment
from gtm.client.sessions.blocking import Session

__all__ = ["AsyncSession", "Options", "Session", "from_environment"]

"""The demo regions' load, sent to control every second (`POST /v1/load-reports`), as real regions would."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx

from gtm.transport import context_for

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between reports."""
_TIMEOUT = 2.0


async def report(control_url: str, token: str, reports: Callable[[], list[dict[str, Any]]]) -> None:
    """Send reports until cancelled. While control is away they are lost; the next try is a second later.

    Args:
        control_url: the base of the control API.
        token: of role `reporter`.
        reports: the load now, of every region that runs.
    """
    headers = {"Authorization": f"Bearer {token}"}
    failing = False
    verify = context_for(control_url, None, direct=True)
    async with httpx.AsyncClient(headers=headers, timeout=_TIMEOUT, trust_env=False, verify=verify) as client:
        while True:
            found = reports()
            problem = ""
            try:
                if found:
                    sent = await client.post(f"{control_url}/v1/load-reports", json={"reports": found})
                    # 422: a service is not in the policy any more; all else was taken in.
                    problem = "" if sent.status_code in (204, 422) else f"status {sent.status_code}"
            except httpx.HTTPError as error:
                problem = str(error) or type(error).__name__
            if problem and not failing:
                logger.debug("control does not take the load reports: %s", problem)
            failing = bool(problem)
            await asyncio.sleep(EVERY)

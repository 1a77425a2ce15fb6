"""What `gtm top` can show, and by which keys."""

from __future__ import annotations

from enum import StrEnum


class Tab(StrEnum):
    """One of the lists that `gtm top` shows."""

    REGIONS = "regions"
    SERVERS = "servers"
    TENANTS = "tenants"


KEYS = {str(number): tab for number, tab in enumerate(Tab, 1)}

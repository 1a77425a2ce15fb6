"""What `gtm top` can show, and by which keys."""

from __future__ import annotations

from enum import StrEnum


class Tab(StrEnum):
    """What is looked at."""

    REGIONS = "regions"
    SERVERS = "servers"
    TENANTS = "tenants"


KEYS = {str(number): tab for number, tab in enumerate(Tab, 1)}

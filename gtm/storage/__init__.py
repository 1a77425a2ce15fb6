"""Postgres: tables, repositories, migrations, and the embedded server. Only this package writes queries."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Absent(ModuleType):
    """Stands for a module that nobody here uses: its names are there, and nothing behind them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


# With SQLAlchemy's asynchronous engine come sessions, and with these all of its object-relational mapper: 70 ms and 6 MB of each process.
for _name in ("sqlalchemy.ext.asyncio.scoping", "sqlalchemy.ext.asyncio.session"):
    sys.modules.setdefault(_name, _Absent(_name))

"""Who a worker of an edge is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkerKind(StrEnum):
    """The protocol in which a worker answers."""

    HTTP = "http"
    DNS = "dns"


@dataclass(frozen=True, slots=True)
class WorkerId:
    """One worker of an edge: its kind, and its number among those of its kind, from 1. It keeps both when it is restarted."""

    kind: WorkerKind
    number: int

    def __str__(self) -> str:
        """As people read it: in the log, in metrics, in the list of processes."""
        return f"{self.kind}-{self.number}"

    @property
    def index(self) -> int:
        """Its number from 0: which of the sockets and which parts of leases are its own."""
        return self.number - 1

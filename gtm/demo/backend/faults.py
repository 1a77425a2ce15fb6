"""Ways in which a server fails, switched on and off while it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from gtm.nesting import shallow


class Mode(StrEnum):
    """The way in which a server misbehaves, or does not."""

    OK = "ok"
    REFUSE = "refuse"
    """Nothing listens, and what was open breaks off."""
    HANG = "hang"
    """Connections are accepted, requests read, nothing is ever answered."""
    STALL = "stall"
    """A stream stops after some tokens for some seconds, and goes on then."""
    RESET = "reset"
    """A stream's connection is reset after some tokens."""
    ERROR = "error"
    """Generation is answered with 500; health says 200."""
    DEAD = "dead"
    """The engine stands still: requests are accepted and wait for ever; health says 200."""
    SLOW = "slow"
    """Every step takes longer by a factor."""
    OOM = "oom"
    """The engine ran out of GPU memory and died: everything in it ends with an error, new requests get 500, health says 503."""
    UNLOADED = "unloaded"
    """No model is loaded: 404."""


class FaultError(ValueError):
    """What was asked for is no fault; the message says what is one."""


class InjectedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mode and its numbers."""

    mode: Mode = Mode.OK
    seconds: float | None = None
    """For how long; None: until another is set. Of `stall`: how long each stream stops (30 where none are given)."""
    after: int = 3
    """Tokens of a stream before it stalls or is reset."""
    factor: float = 10.0
    """How many times slower a server of mode `slow` is."""

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds <= 86_400:
            raise ValueError(f"`seconds` must be more than 0 and at most 86400, not {self.seconds:g}")
        if not 0 <= self.after <= 1_000_000:
            raise ValueError(f"`after` must be 0 to 1000000 tokens, not {self.after}")
        if not 0 < self.factor <= 1000:
            raise ValueError(f"`factor` must be more than 0 and at most 1000, not {self.factor:g}")

    @property
    def pause(self) -> float:
        """Seconds for which a stalled stream stops."""
        return 30.0 if self.seconds is None else self.seconds

    @property
    def ends_after(self) -> float | None:
        """Seconds after which it is over by itself."""
        return None if self.mode is Mode.STALL else self.seconds


HEALTHY = InjectedFault()


def read_fault(content: bytes) -> InjectedFault:
    """A fault as JSON.

    Raises:
        FaultError: it is none.
    """
    try:
        return msgspec.json.decode(shallow(content), type=InjectedFault)
    except ValueError as error:
        modes = ", ".join(mode.value for mode in Mode)
        raise FaultError(f'{error}; send {{"mode": …}} with one of {modes}') from error


def described(fault: InjectedFault) -> dict[str, Any]:
    """A fault as a JSON document."""
    return {name: value for name, value in msgspec.to_builtins(fault).items() if value is not None}

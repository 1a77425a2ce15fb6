"""Which loopback addresses the demo world stands on, and what a second terminal needs to know of it.

A block is 127.0.N.0/24. The balancer of region number i (from 1) listens on 127.0.N.i, its model servers on 127.0.N.i1 and
127.0.N.i2, the refusal page on 127.0.N.8, and the switch that fails and restores regions on 127.0.N.9. Taken addresses move the whole world to the next free block, so that two
demos can run side by side.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gtm.files import write_whole
from gtm.nesting import shallow

PORT = 9000
REFUSAL_HOST = 8
SWITCH_HOST = 9
SERVERS = 2
"""Model servers of a region."""
_BLOCKS = range(1, 251)


class DemoError(Exception):
    """The demo world cannot stand, or is not there; the message says what to do."""


@dataclass(frozen=True, slots=True)
class DemoFile:
    """`demo.json` in the data directory: how `gtm demo` finds the running world."""

    block: int
    switch: str
    regions: tuple[str, ...]

    @classmethod
    def read(cls, data_dir: Path) -> DemoFile:
        """What the demo world of a data directory wrote, if it runs.

        Raises:
            DemoError: there is none, or it is damaged.
        """
        path = data_dir / "demo.json"
        try:
            return msgspec.json.decode(shallow(path.read_bytes()), type=cls)
        except FileNotFoundError as error:
            raise DemoError(
                f"no demo runs on the data directory `{data_dir}`; start one with `gtm serve --demo`, or name its "
                "directory with --data-dir"
            ) from error
        except (OSError, ValueError) as error:
            raise DemoError(f"cannot read `{path}`: {error}") from error

    def write(self, data_dir: Path) -> None:
        """Put it where `gtm demo` finds it, whole or not at all."""
        content = msgspec.json.format(msgspec.json.encode(self)) + b"\n"
        write_whole(data_dir / "demo.json", content, mode=0o666)


def address(block: int, host: int) -> str:
    """An address of a block."""
    return f"127.0.{block}.{host}"


def server_addresses(block: int, region: int) -> list[str]:
    """Of the model servers of region number so-and-so."""
    return [address(block, 10 * region + number) for number in range(1, SERVERS + 1)]


def reserve_block() -> tuple[int, socket.socket]:
    """The first block where every address of the demo world is free, reserved.

    Returns:
        The block, and a socket bound to its switch address: whoever holds that holds the block, so that two demos
        started at the same moment do not take the same one.

    Raises:
        DemoError: there is none.
    """
    for block in _BLOCKS:
        switch = socket.socket()
        switch.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            switch.bind((address(block, SWITCH_HOST), PORT))
            switch.listen()
        except OSError:
            switch.close()
            continue
        # The model servers too: those of a world that was killed may outlive its balancers for a moment.
        servers = (one for region in range(1, REFUSAL_HOST) for one in server_addresses(block, region))
        if all(map(_free, servers)) and all(_free(address(block, host)) for host in range(1, SWITCH_HOST)):
            return block, switch
        switch.close()
    raise DemoError(
        f"port {PORT} is taken in every block of loopback addresses from 127.0.1.0 to 127.0.250.0"
    )


def _free(host: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, PORT))
        except OSError:
            return False
        return True

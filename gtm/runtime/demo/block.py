"""Which loopback addresses the demo world stands on, and what a second terminal needs to know of it.

A block is 127.0.N.0/24. Region number i (from 1) listens on 127.0.N.i, the refusal page on 127.0.N.8, and the switch
that fails and restores regions on 127.0.N.9. Taken addresses move the whole world to the next free block, so that two
demos can run side by side.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gtm.core.model.values import Endpoint, Policy, RefusalAddress
from gtm.files import write_whole

PORT = 9000
REFUSAL_HOST = 8
SWITCH_HOST = 9
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
        """Read it.

        Raises:
            DemoError: there is none, or it is damaged.
        """
        path = data_dir / "demo.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError as error:
            raise DemoError(
                f"no demo runs on the data directory `{data_dir}`; start one with `gtm serve --demo`, or name its "
                "directory with --data-dir"
            ) from error
        except (OSError, msgspec.MsgspecError) as error:
            raise DemoError(f"cannot read `{path}`: {error}") from error

    def write(self, data_dir: Path) -> None:
        """Write it."""
        content = msgspec.json.format(msgspec.json.encode(self)) + b"\n"
        write_whole(data_dir / "demo.json", content, mode=0o666)


def address(block: int, host: int) -> str:
    """An address of a block."""
    return f"127.0.{block}.{host}"


def claim_block() -> tuple[int, socket.socket]:
    """The first block where every address of the demo world is free, claimed.

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
        if all(_free(address(block, host)) for host in range(1, SWITCH_HOST)):
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


def moved(policy: Policy, block: int) -> Policy:
    """The demo policy with its own loopback addresses moved to a block; everything else stays as it is."""
    regions = tuple(
        replace(region, endpoints=tuple(_moved_endpoint(endpoint, block) for endpoint in region.endpoints))
        for region in policy.regions
    )
    services = tuple(
        replace(
            service,
            refusal=RefusalAddress(
                tuple(_moved_address(text, block) for text in service.refusal.ipv4), service.refusal.ipv6
            ),
        )
        for service in policy.services
    )
    return replace(policy, regions=regions, services=services)


def _moved_endpoint(endpoint: Endpoint, block: int) -> Endpoint:
    if not (len(endpoint.ipv4) == 1 and endpoint.url == f"http://{endpoint.ipv4[0]}:{PORT}"):
        return endpoint
    ours = _moved_address(endpoint.ipv4[0], block)
    return replace(endpoint, url=f"http://{ours}:{PORT}", ipv4=(ours,))


def _moved_address(text: str, block: int) -> str:
    """Addresses of the form 127.0.N.i with a host of ours move; all others are the user's own."""
    parts = text.split(".")
    ours = parts[:2] == ["127", "0"] and parts[2] != "0" and 1 <= int(parts[3]) < SWITCH_HOST
    return address(block, int(parts[3])) if ours else text

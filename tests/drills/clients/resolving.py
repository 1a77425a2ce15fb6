"""Clients that find a service by DNS, as on any machine: by the system's resolver, which asks a caching one (Unbound), which asks an edge.

Whom the system's resolver asks stands in `/etc/resolv.conf`: a client runs where that file is another (`unshare --mount`). Neither there nor in DNS is a place for a port:
the caching one has port 53 of an address of this machine's own, and regions' balancers have addresses of their own, and one port.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.drills.carrying import CarriedWorld, carrying
from tests.drills.clients.asked import FREE
from tests.ports import free_port
from tests.resolvers.harness import unbound
from tests.system.harness import eventually

HOST = "chat.demo.test"
ADDRESSES = {"fra": "127.77.1.1", "ams": "127.77.2.1", "iad": "127.77.3.1"}
OVERRIDES = "overrides: [{network: 127.0.0.0/8, country: DE, lat: 50.1, lon: 8.7}]"
"""Clients stand beside Frankfurt."""
CACHED = 3600
"""Seconds for which caches keep an answer: what plans say meanwhile, no client hears."""


@dataclass(frozen=True)
class ResolvedWorld:
    """Regions, and clients for whom the service's name leads to Frankfurt."""

    carried: CarriedWorld
    within: list[str]
    """A command that runs another one where names are resolved so."""

    @property
    def base(self) -> str:
        """The service, by its name."""
        return f"http://{HOST}:{self.carried.ports['fra']}"

    def in_flight(self, region: str) -> int:
        """Requests at a region's servers."""
        return sum(int(one["in_flight"]) for one in self.carried.state(region)["backends"])

    def pushed(self) -> int:
        """Requests that Frankfurt has pushed to Amsterdam, which is the only region that it may push to.

        Raises:
            AssertionError: some were pushed elsewhere.
        """
        pushes = [one for one in self.carried.state("fra")["pushes"] if one["why"] == "moved"]
        assert {one["region"] for one in pushes} <= {"ams"}
        return sum(int(one["requests"]) for one in pushes)

    @contextmanager
    def filled(
        self, *held: tuple[bytes, int], probes: Sequence[tuple[str, dict[str, Any]]]
    ) -> Iterator[None]:
        """Frankfurt has no slot left, and has found out that Amsterdam has.

        Args:
            held: requests that keep a slot for as long as their connection lasts, and how many of each there are slots for.
            probes: paths and bodies of what is to be pushed.
        """
        at = ADDRESSES["fra"], self.carried.ports["fra"]
        with ExitStack() as stack:
            for request, slots in held:
                for _ in range(slots):
                    stack.enter_context(socket.create_connection(at)).sendall(request)
            eventually(lambda: self.in_flight("fra") == sum(slots for _, slots in held), "Frankfurt is full")
            for path, body in probes:
                eventually(
                    lambda path=path, body=body: self._serves(path, body) == "ams", f"{path} is pushed"
                )
            yield

    def _serves(self, path: str, body: dict[str, Any]) -> str | None:
        said = {"Host": HOST, "Authorization": f"Bearer {FREE}", "gtm-timeout": "4"}
        url = f"http://{ADDRESSES['fra']}:{self.carried.ports['fra']}{path}"
        answer = httpx.post(url, json=body, headers=said, timeout=20, trust_env=False)
        return answer.headers.get("x-gtm-region")


def post(path: str, body: dict[str, Any]) -> bytes:
    """A request with a key."""
    content = json.dumps(body).encode()
    lines = (f"POST {path} HTTP/1.1", f"Host: {HOST}", f"Authorization: Bearer {FREE}")
    lines += ("Content-Type: application/json", f"Content-Length: {len(content)}", "", "")
    return "\r\n".join(lines).encode() + content


@contextmanager
def resolving(
    folder: Path, servers: Mapping[str, Mapping[str, Any]], *, service: Mapping[str, object] = {}
) -> Iterator[ResolvedWorld]:
    """Start it; clients find Frankfurt when the block begins. See `carrying`."""
    config, places = folder / "resolv.conf", folder / "places.yaml"
    number = free_port()  # nobody else's: worlds run beside each other
    resolver = f"127.78.{number >> 8}.{number & 255}"
    config.write_text(f"nameserver {resolver}\n")
    places.write_text(OVERRIDES)
    within = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    within += [f"mount --bind '{config}' /etc/resolv.conf && exec \"$@\"", "sh"]
    if why := _forbidden(resolver, within):
        pytest.skip(why)
    with ExitStack() as stack:
        carried = stack.enter_context(
            carrying(
                folder,
                servers,
                service={"ttl": CACHED, **service},
                arguments=("--geoip-overrides", str(places)),
                host=HOST,
                addresses=ADDRESSES,
                of_balancers=("--geoip-overrides", str(places), "--trusted-proxies", ""),
            )
        )
        more = f"  interface: {resolver}@53\n"
        stack.enter_context(unbound(folder, carried.system.dns_port, source="127.0.0.1", server=more))
        eventually(lambda: _resolved(within) == ADDRESSES["fra"], "the name leads to Frankfurt")
        yield ResolvedWorld(carried, within)


def _forbidden(resolver: str, within: list[str]) -> str:
    """Why clients cannot be told which resolver to ask; empty: they can."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind((resolver, 53))
        subprocess.run([*within, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"port 53 and a resolv.conf of clients' own need root, or the rights to them: {error}"
    return ""


def _resolved(within: list[str]) -> str:
    """The address that the system's resolver finds; empty: none."""
    command = [*within, "getent", "ahostsv4", HOST]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return found[0] if found else ""

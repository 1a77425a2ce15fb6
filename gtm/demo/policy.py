"""The demo policy: as it comes with gtm, and as it is put in force where the demo world stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import RefusalAddress
from gtm.demo.block import PORT, SWITCH_HOST, address
from gtm.documents.folders import load_folder

_PACKAGE = Path(__file__).resolve().parent.parent


def demo_folder() -> Path:
    """The demo policy's folder, in a checkout and in an installed package alike."""
    installed = _PACKAGE / "_policies" / "demo"
    return installed if installed.is_dir() else _PACKAGE.parent / "policies" / "demo"


def demo_policy() -> Policy:
    """The demo policy, as shipped."""
    return load_folder(demo_folder())


def standing(policy: Policy, block: int) -> Policy:
    """The policy in force as it is to be once the world stands on a block of addresses.

    Without regions there is none yet: then it is the demo's. Else only the demo's own addresses in it move.
    """
    return moved(policy if policy.regions else demo_policy(), block)


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

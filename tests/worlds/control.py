"""The policy that tests put into a control tier, and its documents: three regions, a zone, a service, a rule and a tenant."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gtm.core.model.policy import Tenant
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import RefusalAddress, Zone
from gtm.documents.schema import concise_policy
from tests import worlds

WORLD = worlds.policy(
    *(
        worlds.region(name, Endpoint(f"http://127.0.1.{number}:9000", (f"127.0.1.{number}",)))
        for number, name in enumerate(worlds.THREE.split(), 1)
    ),
    Zone("demo.test", "ns1.demo.test", "hostmaster.demo.test"),
    worlds.service(
        "chat", worlds.THREE, hostnames=("chat.demo.test",), refusal=RefusalAddress(("127.0.1.8",))
    ),
    worlds.rule(
        "gdpr",
        "EEA",
        services="chat",
        client_jurisdictions="EEA",
        legal_basis="Regulation (EU) 2016/679, Chapter V",
    ),
    Tenant("clinic"),
)
POLICY = concise_policy(WORLD)
"""The document of the whole. Tests share it, as all documents of this module, and leave it as it is."""
REGIONS = {one.name: worlds.document(one) for one in WORLD.regions}
(ZONE,) = map(worlds.document, WORLD.zones)
(CHAT,) = map(worlds.document, WORLD.services)
(GDPR,) = map(worlds.document, WORLD.residency_rules)


def region(name: str, **changes: Any) -> dict[str, Any]:
    """A region's document, which a test may change."""
    return {**deepcopy(REGIONS[name]), **changes}

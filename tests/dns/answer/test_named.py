"""Host names that state a tenant or data class, over DNS."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gtm.core.demand.cells import Cell
from gtm.core.model.policy import DataClass, Tenant
from gtm.core.model.services import HostName
from gtm.telemetry import Counts
from tests import worlds
from tests.dns.world import POLICY, RECORDS, addresses, answerer, both, query

US = "10.2.3.0/24"
EU_ADDRESSES, US_ADDRESSES = {"192.0.2.1", "192.0.2.2"}, {"192.0.2.4"}
CHAT = replace(
    POLICY.services[0],
    hostnames=(
        "chat.demo.test",
        HostName("bank.demo.test", "bank"),
        HostName("else.demo.test", "public"),
        HostName("*.clinics.demo.test", "clinic", "health"),
        HostName("notes.demo.test", None, "notes"),
    ),
)
RULE = worlds.rule("health", "eu", services="chat", tenants="bank clinic", data_classes="health")
WORLD = replace(
    POLICY,
    services=(CHAT, *POLICY.services[1:]),
    residency_rules=(RULE,),
    tenants=(Tenant("bank"), Tenant("clinic"), Tenant("public")),
    data_classes=(DataClass("health"), DataClass("notes")),
)


@pytest.mark.parametrize(
    ("name", "expected", "cell"),
    [
        ("chat", EU_ADDRESSES, (None, None)),
        ("bank", EU_ADDRESSES, ("bank", None)),
        ("else", US_ADDRESSES, ("public", None)),
        ("a.clinics", EU_ADDRESSES, ("clinic", "health")),
        ("a.b.clinics", EU_ADDRESSES, ("clinic", "health")),
        ("notes", US_ADDRESSES, (None, "notes")),
    ],
)
def test_a_name_is_answered_for_whom_it_states(
    name: str, expected: set[str], cell: tuple[str | None, str | None]
) -> None:
    """Each name is answered inside its own fence, warm as cold, and counted as what it states."""
    counts = Counts()
    server = answerer(policy=WORLD, counts=counts)
    packet = query(f"{name}.demo.test", subnet=US)
    for _ in range(3):
        assert server.udp(packet, "10.3.0.53") is not None
        assert set(addresses(both(server, packet))) == expected
    found = [Cell.parse(key.split("\t")[-1]) for key in counts.take() if key.startswith("demand")]
    assert found
    assert {(item.tenant, item.data_class) for item in found} == {cell}
    said = addresses(both(server, query(f"{name}.demo.test", "TXT", subnet=US)))[0]
    assert ('"tenant=' in said, '"data_class=' in said) == (cell[0] is not None, cell[1] is not None)


def test_an_alias_states_what_its_end_does() -> None:
    """The name that an alias ends at says whose request it is, not the alias."""
    records = [replace(record, data=("bank",)) if record.name == "to-drawn" else record for record in RECORDS]
    server = answerer(policy=worlds.changed(WORLD, "zones", "demo.test", records=tuple(records)))
    assert set(addresses(both(server, query("to-drawn.demo.test", subnet=US)))[1:]) <= EU_ADDRESSES

"""Options of servers: declared once, offered by each command that has a use for them, handed on whole."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import typer.main

import gtm.settings
from gtm.cli.app import app
from gtm.cli.servers.declared import Given
from gtm.options import options
from gtm.runtime.edge.line import EdgeWorkerSettings, WorkerId, WorkerKind
from gtm.runtime.process.handed import document, read
from gtm.runtime.process.listeners import Lent, Use
from gtm.runtime.serve.handed import Preparing, ServedControl
from gtm.runtime.serve.supervisor import told_control, told_edge
from gtm.settings import ControlSettings, EdgeSettings, ServerSettings, ServeSettings

PACKAGE = Path(gtm.settings.__file__).parent
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OTHERS: dict[str, Any] = {
    "data_dir": Path("/x"),
    "bind": ["192.0.2.1,::1"],
    "geoip_db": Path("/a"),
    "geoip_overrides": Path("/b"),
    "metrics_allow": "192.0.2.0/24,2001:db8::/32",
    "log_level": "debug",
    "control_port": 1,
    "database_url": "postgresql://db/gtm",
    "latency_half_life": 61.5,
    "max_moved_share": 0.5,
    "fence_approvals": 1,
    "demand_days": 1,
    "audit_days": 1,
    "probe_days": 1,
    "peer_allow": "10.0.0.0/8",
    "dnssec_key_file": Path("/c"),
    "dnssec_zsk_days": 1,
    "dnssec_resolver": "192.0.2.53",
    "dashboard_url": "https://gtm.example.com",
    "oidc_issuer": "https://login.example.com",
    "oidc_client_id": "gtm",
    "oidc_client_secret": "s3cret",
    "oidc_roles": ["admin=group:gtm-admins"],
    "edge_port": 2,
    "dns_port": 3,
    "dns_bind": ["[::1]:53", "192.0.2.1"],
    "dns_cookie_secret_file": Path("/d"),
    "dns_nsid": "none",
    "dns_version": "1",
    "dns_rate_limit": 1,
    "dns_rate_limit_excess": 1,
    "dns_rate_limit_slip": 1,
    "dns_rate_limit_exempt": "none",
    "carry": False,
    "carry_trust": "10.0.0.0/8",
    "tls_certificate": Path("/g"),
    "tls_key": Path("/h"),
    "drain_time": 1.0,
    "workers": 2,
    "geoip_anonymous_db": Path("/e"),
    "trusted_proxies": "10.0.0.0/8",
    "probe_allow": "10.0.0.0/8",
    "ca_file": Path("/f"),
    "open_lookups": True,
    "token_max_age": 61.0,
    "beacons": False,
    "region": "eu",
    "country": "de",
    "operator_country": "fr",
    "exit_when_refused": True,
    "user": "gtm",
}
"""Something else than the default, for each option."""


def edge(**given: Any) -> EdgeSettings:
    """An edge's settings of these options."""
    return Given(given).settings(EdgeSettings, control_url="http://192.0.2.1", token="t", name="fra-1")


def control(**given: Any) -> ControlSettings:
    """Control's."""
    return Given(given).settings(ControlSettings)


@pytest.mark.parametrize(
    ("command", "kinds", "without"),
    [
        ("control", (ControlSettings,), set()),
        ("edge", (EdgeSettings,), set()),
        ("serve", (ControlSettings, EdgeSettings), {"user", "exit_when_refused"}),
    ],
)
def test_commands_offer_what_is_declared(command: str, kinds: tuple[type, ...], without: set[str]) -> None:
    """With the variable and the help that stand beside the field."""
    offered = {one.name: one for one in COMMANDS[command].params}
    for one in (one for kind in kinds for one in options(kind) if one.name not in without):
        found = offered[one.name]
        assert (found.opts[0], found.envvar, found.help) == (one.flag, one.variable, one.option.help)
    assert not without & {*offered}


def _fields(kind: type) -> set[str]:
    """The names of the fields that have options, in a class of settings and its parts."""
    own = {one.name for one in fields(kind)}
    return own.union(*(_fields(type(one.default)) for one in fields(kind) if is_dataclass(one.default)))


@pytest.mark.parametrize("kind", [ControlSettings, EdgeSettings])
def test_what_is_declared_is_read(kind: type) -> None:
    """An option that nobody reads would be taken and do nothing. Only files that know of settings are looked at."""
    sources = "".join(
        text for path in PACKAGE.rglob("*.py") if re.search("[Ss]ettings", text := path.read_text())
    )
    assert {name for name in _fields(kind) if not re.search(rf"\.{name}\b", sources)} == set()


def test_what_is_given_is_handed_on_whole() -> None:
    """Whatever an option is set to comes out of the document as it went in, for control, an edge and its workers."""
    every = [one for kind in (ControlSettings, EdgeSettings) for one in options(kind)]
    files = {one.file.name for one in every if one.option.secret is not None}
    assert OTHERS.keys() == {one.name for one in every} - files
    default = Path("/y")
    for name, value in OTHERS.items():
        for kind, make in ((ControlSettings, control), (EdgeSettings, edge)):
            if name not in {one.name for one in options(kind)}:
                continue
            told: ServerSettings = make(**{"data_dir": default, name: value})
            assert told != make(data_dir=default), name
            assert read(document(told), kind) == told
    lent = (Lent(Use.DNS_UDP, "::", 53, 4), Lent(Use.DNS_TCP, "127.0.0.1", 53, 5))
    cookies = bytes(16), bytes(range(16))
    worker = EdgeWorkerSettings(WorkerId(WorkerKind.DNS, 1), edge(**OTHERS), 3, lent, cookies, 7)
    assert read(document(worker), EdgeWorkerSettings) == worker
    assert read(document(replace(worker, door=None)), EdgeWorkerSettings).door is None


def test_serve_tells_control_and_the_edge_all_that_it_was_told(tmp_path: Path) -> None:
    """But for what it knows better: the database that it runs, and who the edge is."""
    given = {**OTHERS, "data_dir": tmp_path, "database_url": None}
    settings = ServeSettings(control(**given), edge(**given))

    database_url = "postgresql://127.0.0.1/own"
    preparing = Preparing("token", None, "secret", 4)
    first = told_control(settings, database_url, preparing, "link")
    of_control = told_control(settings, database_url, None, "link")
    of_edge = told_edge(settings, "http://192.0.2.1:1", "token")
    assert first == ServedControl(replace(of_control.settings, sign_in="link"), preparing)
    assert read(document(first), ServedControl) == first
    assert of_control == ServedControl(replace(settings.control, database_url=database_url), None)
    assert read(document(of_control), ServedControl) == of_control
    own = {"control_url": "http://192.0.2.1:1", "name": "local", "replace": True, "token": "token"}
    assert of_edge == replace(settings.edge, **own)  # type: ignore[arg-type]


def test_networks_of_both_families_come_back() -> None:
    """They are values, not texts."""
    told = edge(data_dir=Path("/y"), metrics_allow="192.0.2.0/24,2001:db8::/32")
    again = read(document(told), EdgeSettings)
    assert again.metrics_allow == (ip_network("192.0.2.0/24"), ip_network("2001:db8::/32"))


def test_no_document_is_no_settings() -> None:
    """A parent that ended before it said anything has started nothing."""
    with pytest.raises(ValueError, match="Input data was truncated"):
        read(b"", ControlSettings)

"""Each field of a balancer's file: a change counts at once, or the log and the state say that it counts from the next start.

The fields are those of the document's schema: a new one fails here until it has a value, is read by somebody, and counts.
"""

# ruff: noqa: SLF001 - what the parts of a carrier go by is their own

from __future__ import annotations

import json
import shutil
import types
import typing
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gtm.balancer.config import AT_START, BalancerDocument
from gtm.balancer.plane.timeouts import TimeoutRules
from gtm.core.model.requests import UNKNOWN_LOCATION
from gtm.core.quota.leases import LeaseParts
from gtm.documents.resources import Document
from gtm.feed.current import CurrentView
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.runtime.balancer.carrier import Carrier
from tests import uvloops
from tests.balancer.certificates import Authority
from tests.balancer.test_backends_file import settings

KEY = "ab" * 32


def _files(folder: Path) -> dict[str, Any]:
    """A file in which every field has a value."""
    ours = Authority(folder, "ca")
    ours.issue("one", "a.test")
    for name in ("one-chain.pem", "one-key.pem", "ca.pem"):
        shutil.copy(folder / name, folder / f"copy-{name}")
    limits = {
        "weight": 2,
        "requests_per_second": 5,
        "burst": 9,
        "concurrency": 7,
        "input_tokens_per_minute": 1000,
        "output_tokens_per_minute": 1000,
        "priority": "batch",
    }
    times = {"connect": 3.0, "failing": 3.0, "first_byte": 3.0, "between": 3.0, "whole": 3.0}
    return {
        "service": "chat",
        "paths": ["inference"],
        "backends": [
            {
                "url": "http://127.0.0.1:1",
                "weight": 1,
                "slots": 4,
                "models": ["m"],
                "version": "v1",
                "host": "m.example.com",
                "draining": False,
                "resolve": "all",
                "checks": {"key": {"file": None, "env": "A"}, "kind": "chat", "model": "m"},
            }
        ],
        "choosing": {
            "pick": "p2c",
            "score": "work",
            "latency": False,
            "sessions": True,
            "prefix": {"by": "map", "bytes": 512},
            "panic": 0.3,
            "bound": 1.25,
            "most_memory": 0.95,
            "versions": {"v1": 0.5},
        },
        "ejection": {"latency": True},
        "read_mib": 16,
        "repeats": True,
        "hedge": {"percent": 4},
        "timeouts": {
            **times,
            "rules": [{**times, "service": "chat", "paths": ["inference"]}],
        },
        "checks": {
            "health": {
                "type": "http",
                "path": "/health",
                "port": 1,
                "status": [200],
                "interval": 3600,
                "timeout": 1,
                "up": 2,
                "down": 2,
            },
            "models": {"path": "/v1/models", "required": False, "interval": 3600, "timeout": 1},
            "completion": {
                "path": "/v1/completions",
                "kind": "auto",
                "model": "m",
                "interval": 3600,
                "timeout": 1,
            },
            "scrape": {"path": "/metrics", "port": 1, "type": "vllm", "interval": 3600, "timeout": 1},
            "orca": "text",
            "warm_up": 0,
            "key": {"file": None, "env": "A"},
        },
        "admission": {
            "reserves": {"real_time": 0.2},
            "waits": {"real_time": 5},
            "queue_length": 100,
            "queue_mib": 10,
            "tenants": {"acme": {**limits, "keys": [KEY]}},
            "default_tenant": dict(limits),
            "without_tenant": dict(limits),
            "models": {"m": {"concurrency": 3, "token_weight": 1, "fallback": "other"}},
            "media": {"image_tokens": 100, "file_tokens": 1000, "audio_bytes_per_token": 320},
            "priority_from": ["10.0.0.0/8"],
        },
        "tracing": {"endpoint": "http://127.0.0.1:1", "sample": 0.01, "follow": True},
        "access_log": {"path": "access.log", "clients": "network"},
        "tls": {
            "certificates": [{"chain": "one-chain.pem", "key": "one-key.pem"}],
            "client_certificates": "required",
            "client_ca": "ca.pem",
        },
        "backend_tls": {
            "ca": "ca.pem",
            "certificate": {"chain": "one-chain.pem", "key": "one-key.pem"},
            "server_name": "a.test",
        },
        "proxy_protocol": ["10.0.0.0/8"],
    }


_SPECIAL: dict[str, Any] = {
    "paths": ["tokenize"],
    "backends.url": "http://127.0.0.1:2",
    "backends.resolve": "one",
    "timeouts.rules.paths": ["tokenize"],
    "backends.checks.kind": "none",
    "checks.completion.kind": "chat",
    "choosing.pick": "scan",
    "choosing.score": "requests",
    "choosing.bound": 2.0,
    "choosing.prefix.by": "hash",
    "checks.health.type": {"type": "grpc", "service": "x"},
    "checks.health.service": {"type": "grpc", "service": "y"},
    "checks.scrape.type": "sglang",
    "checks.orca": "json",
    "access_log.clients": "full",
    "tracing.endpoint": "http://127.0.0.1:2",
    "tls.client_certificates": "wanted",
    "admission.priority_from": ["192.0.2.0/24"],
    "proxy_protocol": ["192.0.2.0/24"],
    "admission.tenants.keys": ["cd" * 32],
    "admission.reserves": {"real_time": 0.3},
    "admission.waits": {"real_time": 6},
    "choosing.versions": {"v1": 0.25},
    "checks.health.status": [204],
}


def leaves(model: type[Document], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields of a document that hold no other documents."""
    for name, field in model.model_fields.items():
        inner = _document(field.annotation)
        if inner is None:
            yield (*path, name)
        else:
            yield from leaves(inner, (*path, name))


def optional(model: type[Document], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The documents in a document that may be null."""
    for name, field in model.model_fields.items():
        inner = _document(field.annotation)
        if inner is not None:
            if type(None) in typing.get_args(field.annotation):
                yield (*path, name)
            yield from optional(inner, (*path, name))


def _document(annotation: Any) -> type[Document] | None:
    """The document in a field's type, if there is one: by itself, or in lists and mappings."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, Document) else None
    found = (_document(one) for one in typing.get_args(annotation))
    return next((one for one in found if one is not None), None)


def _changed(before: Any, path: tuple[str, ...]) -> Any:
    """Another file, which differs in one field."""
    after = deepcopy(before)
    at = after
    for name in path[:-1]:
        at = at[name]
        if isinstance(at, list):
            at = at[0]
        elif name in ("tenants", "models") and not isinstance(next(iter(at.values())), str | int | bool):
            (at,) = at.values()
    dotted = ".".join(path)
    if dotted in NULLS:
        at[path[-1]] = None
    elif path[:2] == ("checks", "health") and isinstance(_SPECIAL.get(dotted), dict):
        after["checks"]["health"] = _SPECIAL[dotted]
    elif path[-2:] == ("key", "file"):
        at.update(file="key", env=None)
    else:
        at[path[-1]] = _SPECIAL[dotted] if dotted in _SPECIAL else _another(at[path[-1]], dotted)
    if dotted == "repeats":
        after["hedge"] = None  # which needs it
    return after


def _another(value: Any, dotted: str) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return (
                value / 2
                if isinstance(value, float) or dotted.endswith(("interval", "weight"))
                else value + 1
            )
        case str() if value.endswith(".pem"):
            return f"copy-{value}"
        case str() if value == "batch":
            return "real_time"
        case str():
            return value + "2"
        case list() if all(isinstance(one, str) for one in value):
            return [*value, "another"]
    raise AssertionError(f"give the test another value of `{dotted}`")


def _in_force(carrier: Carrier) -> dict[str, object]:
    """What the parts of a carrier go by."""
    picker, proxy, front, health = carrier._picker, carrier._proxy, carrier._front, carrier._health
    return {
        "who": carrier._law.says,
        "backends": [one.backend for one in picker.pool.candidates],
        "names": [
            one.resolve for one in carrier._file.document.backends
        ],  # from which they are looked up each time
        "choosing": (picker.pool.settings, picker.affinity, picker.cut, picker.corrects, picker.read_load),
        "admission": carrier._admission.admission.settings,
        "health": (health.health._settings, health._settings, health._drained),
        "own checks": [one.own for one in health._checks._watched.values()]
        if health._checks is not None
        else None,
        "paths": None if proxy.paths is None else (proxy.paths._exact, proxy.paths._patterns),
        "bodies": proxy.body_rules,
        "media": proxy.media,
        "read": proxy.most_read,
        "repeats": proxy.repeats,
        "hedge": None if proxy.hedging is None else proxy.hedging.share,
        "hosts": [(route.url, route.host_field) for route in picker.routes()],
        "asks": proxy.asks,
        "times": repr(_times(proxy.timeouts)),
        "access": carrier._access._document,
        "tracing": None if proxy.tracer is None else proxy.tracer.settings,
        "tls": None if front._listener is None else front._listener.settings,
        "backend_tls": front._backends._settings,
        "proxies": front._trusted,
    }


def _times(rules: TimeoutRules) -> list[object]:
    """Times as values; of paths what tells them apart."""
    return [
        rules.inference,
        rules.others,
        [
            (one.service, one.paths and (one.paths._exact, one.paths._patterns), one.inference, one.others)
            for one in rules._rules
        ],
    ]


class _Nowhere:
    loads = 1

    @staticmethod
    def locate(_: object) -> object:
        return UNKNOWN_LOCATION


def _carrier(folder: Path, written: object) -> Carrier:
    file = folder / "balancer.yaml"
    file.write_text(json.dumps(written))
    set_ = replace(settings(folder, file), ca_file=folder / "ca.pem")  # sooner read than all public ones
    return Carrier(
        set_,
        "test",
        current=CurrentView(lambda: 0.0),
        file=BackendsFile(set_),
        locator=cast("Locator", _Nowhere()),
        parts=LeaseParts(0, 0.0, {}),
    )


NULLS = [".".join(path) for path in optional(BalancerDocument)]
FIELDS = [*(".".join(path) for path in leaves(BalancerDocument)), *NULLS]


@pytest.mark.parametrize("field", FIELDS)
def test_a_change_counts_or_it_is_said_that_it_waits(
    tmp_path: Path, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Read again, a balancer goes by what one goes by that was started with the new file; else it says which field waits."""
    path = tuple(field.split("."))
    before = _files(tmp_path)
    if field == "checks.health.service":
        before["checks"]["health"] = {"type": "grpc", "service": "x"}
    after = _changed(before, path)

    async def main() -> None:
        fresh = _carrier(tmp_path, after)
        await fresh._health.configure(fresh._file.document)
        expected = _in_force(fresh)
        await fresh.close()
        caplog.clear()
        old = _carrier(tmp_path, before)
        await old._health.configure(old._file.document)
        assert _in_force(old) != expected, "nobody reads this field, or the test does not see it"
        old._file._settings.file.write_text(json.dumps(after))  # type: ignore[union-attr]
        await old._reread()
        waits = AT_START in BalancerDocument.model_fields[path[0]].metadata
        if waits:
            assert (await old.state())["waits_for_start"] == [path[0]]
            assert f"`{path[0]}` says has changed and counts from the next start" in caplog.text
        else:
            assert _in_force(old) == expected
            assert (await old.state())["waits_for_start"] == []
            assert "next start" not in caplog.text
        await old.close()

    uvloops.run(main())


def test_what_is_put_back_waits_no_more(tmp_path: Path) -> None:
    """The state says what differs from the file that the balancer was started with."""
    before = _files(tmp_path)
    after = {**before, "proxy_protocol": []}

    async def main() -> None:
        carrier = _carrier(tmp_path, before)
        file = tmp_path / "balancer.yaml"
        for written, waits in ((after, ["proxy_protocol"]), (before, [])):
            file.write_text(json.dumps(written))
            await carrier._reread()
            assert (await carrier.state())["waits_for_start"] == waits
        await carrier.close()

    uvloops.run(main())


def test_the_fields_of_the_page_are_those_of_the_file() -> None:
    """None is forgotten here: the table of docs/balancer.md says which wait."""
    page = (Path(__file__).parents[3] / "docs/balancer.md").read_text()
    waiting = {name for name, field in BalancerDocument.model_fields.items() if AT_START in field.metadata}
    said = page.partition("From the next start count ")[2].partition(":")[0]
    assert {one.strip("` ") for one in said.replace(" and ", ", ").split(",")} == waiting

"""The balancer's file: what is in it, what is wrong with it, and that its page speaks of the fields there are."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gtm.balancer import config
from gtm.balancer.config import (
    AccessLogDocument,
    BackendDocument,
    BalancerDocument,
    ChoosingDocument,
    checked,
    load,
    of_urls,
)
from gtm.balancer.health.check_settings import CheckSettings
from gtm.balancer.plane.access import ClientDetail
from gtm.balancer.wire.facts import PromptCut
from gtm.core.balance.admission.settings import AdmissionSettings
from gtm.core.balance.choosing.values import ChoosingSettings, Prefix
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.model.problems import PolicyError
from gtm.runtime.balancer.carrier import health_settings
from tests.docs.blocks import ROOT
from tests.effort import examples

PAGE = (ROOT / "docs/balancer.md").read_text()


def _load(folder: Path, text: str) -> BalancerDocument:
    file = folder / "balancer.yaml"
    file.write_text(text)
    return load(file)


def _problems(folder: Path, text: str) -> str:
    with pytest.raises(PolicyError) as error:
        _load(folder, text)
    return str(error.value)


def test_the_least_is_a_url() -> None:
    """One URL has every default of those who go by it."""
    found = of_urls(["http://10.0.0.5:8000/"])
    assert [one.name for one in found.servers()] == ["http://10.0.0.5:8000"]
    assert found.choice() == ChoosingSettings()
    assert found.checks == CheckSettings()
    assert found.admission.settings() == AdmissionSettings(tenants={}, models={})


@pytest.mark.parametrize(
    ("text", "prefix", "cut"),
    [
        ("", Prefix.NONE, None),
        ("prefix: none", Prefix.NONE, None),
        ("prefix: map", Prefix.MAP, PromptCut(512)),
        ("prefix: {by: map}", Prefix.MAP, PromptCut(512)),
        ("prefix: {by: map, bytes: 256}", Prefix.MAP, PromptCut(256)),
        ("prefix: hash", Prefix.HASH, PromptCut(1024, 1)),
        ("prefix: {by: hash}", Prefix.HASH, PromptCut(1024, 1)),
        ("prefix: {by: hash, bytes: 4096}", Prefix.HASH, PromptCut(4096, 1)),
    ],
)
def test_how_prompts_are_looked_at(tmp_path: Path, text: str, prefix: Prefix, cut: PromptCut | None) -> None:
    """Not at all by default: then nothing of them is hashed."""
    found = _load(tmp_path, f"backends: [{{url: 'http://x'}}]\nchoosing: {{{text}}}\n")
    assert (found.choice().prefix, found.cut()) == (prefix, cut)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", None),
        ("access_log: null", None),
        ("access_log: a.log", AccessLogDocument(path="a.log", clients=ClientDetail.NETWORK)),
        ("access_log: '-'", AccessLogDocument(path="-")),
        (
            "access_log: {path: /a.log, clients: full}",
            AccessLogDocument(path="/a.log", clients=ClientDetail.FULL),
        ),
    ],
)
def test_where_requests_are_logged(tmp_path: Path, text: str, said: AccessLogDocument | None) -> None:
    """Nowhere by default; of addresses no more than the network."""
    assert _load(tmp_path, f"backends: [{{url: 'http://x'}}]\n{text}\n").access_log == said


def test_the_pages_examples_are_read(tmp_path: Path) -> None:
    """Every example on the page is a file that counts."""
    found = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    texts = [text for text in found if not text.startswith("static_resources:")]  # Envoy's
    assert (len(found), len(texts)) == (11, 10)
    for text in texts:
        assert _load(tmp_path, text).backends


@pytest.mark.parametrize(
    ("document", "least"),
    [(BalancerDocument, 10), (BackendDocument, 6), (ChoosingDocument, 8), (CheckSettings, 5)],
)
def test_fields_are_described(document: type[BaseModel], least: int) -> None:
    """The page's tables name every field."""
    listed = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))
    assert len(document.model_fields) >= least
    assert set(document.model_fields) - listed == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]\n", "must be one mapping"),
        ("backends: []\n", "backends"),
        ("backends: [{url: 'tcp://x'}]\n", "balancer.yaml:1: backends[0].url: must be http:// or https://"),
        ("backends: [{url: 'http://u:p@x'}]\n", "must not hold credentials"),
        ("backends: [{url: 'http://x', host: 'a b'}]\n", "backends[0].host: must be a host name"),
        ("backends: [{url: 'http://x', host: ''}]\n", "backends[0].host: must be a host name"),
        ("backends: [{url: 'http://x', host: \"a\\r\\nx: y\"}]\n", "backends[0].host: must be a host name"),
        ("backends: [{url: 'http://x', host: %s}]\n" % ("a" * 261), "backends[0].host: must be a host name"),
        (
            "backends: [{url: 'http://x'}]\nadmission: {media: {image_tokens: 0}}\n",
            "admission.media.image_tokens",
        ),
        ("backends: [{url: 'http://x'}]\nproxy_protocol: [true]\n", "proxy_protocol[0]: must be a network"),
        ("backends: [{url: 'http://x'}]\nproxy_protocol: [10]\n", "proxy_protocol[0]: must be a network"),
        ("backends: [{url: 'http://x'}, {url: 'http://x/'}]\n", "is listed twice"),
        (
            "backends:\n  - url: http://x\n    wieght: 2\n",
            "balancer.yaml:3: backends[0].wieght: unknown field",
        ),
        ("backends: [{url: 'http://x', slots: 0}]\n", "backends[0].slots"),
        ("backends: [{url: 'http://x'}]\nchoosing: {pick: best}\n", "choosing.pick"),
        ("backends: [{url: 'http://x'}]\nchoosing: {prefix: tree}\n", "choosing.prefix.by"),
        ("backends: [{url: 'http://x'}]\nchoosing: {prefix: {by: tree}}\n", "choosing.prefix.by"),
        ("backends: [{url: 'http://x'}]\nchoosing: {prefix: {by: map, bytes: 1}}\n", "choosing.prefix.bytes"),
        (
            "backends: [{url: 'http://x'}]\nchoosing: {versions: {a: 0.7, b: 0.7}}\n",
            "no more than 1 together",
        ),
        ("backends: [{url: 'http://x'}]\nchecks: {health: {path: nothing}}\n", "write one like"),
        (
            "backends: [{url: 'http://x'}]\nadmission: {tenants: {a: {keys: [short]}}}\n",
            "must be a list of the SHA-256 of tokens",
        ),
        ("backends: [{url: 'http://x'}]\nadmission: {tenants: {a: {burst: 3}}}\n", "decides nothing without"),
        ("backends: [{url: 'http://x'}]\nadmission: {reserves: {real_time: 0.9}}\n", "at most 1"),
        (
            "backends: [{url: 'http://x'}]\ntls: {certificates: [{chain: a, key: b}], client_ca: c}\n",
            "go together",
        ),
        (
            "backends: [{url: 'http://x'}]\naccess_log: /var/log/gtm/\n",
            "access_log.path: must be a file's path",
        ),
        ("backends: [{url: 'http://x'}]\naccess_log: {path: a, clients: some}\n", "access_log.clients"),
        ("backends: [{url: 'http://x'}]\naccess_log: true\n", "access_log"),
        ("backends: [\n", "balancer.yaml"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    """With the line, where that is known, and what to do."""
    assert said in _problems(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("admission: {reserves: {batch: 1.5}}", "admission.reserves.batch"),
        ("admission: {reserves: {slow: 0}}", "admission.reserves.slow"),
        ("admission: {waits: {batch: -1}}", "admission.waits.batch"),
        ("admission: {waits: {batch: .inf}}", "admission.waits.batch"),
        ("admission: {waits: {batch: .nan}}", "admission.waits.batch"),
        ("admission: {queue_length: -1}", "admission.queue_length"),
        ("admission: {queue_mib: 1.5}", "admission.queue_mib"),
        *(
            (f"admission: {{{of}: {{{limit}}}}}", f"admission.{of}.{limit.partition(':')[0]}")
            for of in ("default_tenant", "without_tenant")
            for limit in (
                "weight: 0",
                "weight: .nan",
                "requests_per_second: 0",
                "requests_per_second: .inf",
                "requests_per_second: '9'",
                "burst: 0.5",
                "concurrency: 0",
                "input_tokens_per_minute: -5",
                "output_tokens_per_minute: .nan",
            )
        ),
        ("admission: {tenants: {a: {weight: true}}}", "admission.tenants.a.weight"),
        ("admission: {models: {m: {concurrency: 0}}}", "admission.models.m.concurrency"),
        ("admission: {models: {m: {token_weight: -1}}}", "admission.models.m.token_weight"),
        ("admission: {models: {m: {token_weight: .inf}}}", "admission.models.m.token_weight"),
        ("choosing: {panic: 1.5}", "choosing.panic"),
        ("choosing: {panic: .nan}", "choosing.panic"),
        ("choosing: {bound: 1}", "choosing.bound"),
        ("choosing: {most_memory: 0}", "choosing.most_memory"),
        ("choosing: {versions: {a: -0.5}}", "choosing.versions.a"),
        ("checks: {health: {up: 0}}", "checks.health.up"),
        ("checks: {health: {down: 0}}", "checks.health.down"),
    ],
)
def test_each_number_has_its_bounds(tmp_path: Path, text: str, field: str) -> None:
    """Here and nowhere else: what comes after goes by them."""
    assert field in _problems(tmp_path, f"backends: [{{url: 'http://x'}}]\n{text}\n")


@pytest.mark.parametrize("weight", ["0", "-1", ".inf", ".nan"])
def test_the_weight_of_a_backend_has_bounds(tmp_path: Path, weight: str) -> None:
    """Shares are taken by it."""
    assert "backends[0].weight" in _problems(tmp_path, f"backends: [{{url: 'http://x', weight: {weight}}}]\n")


def test_one_key_shows_one_tenant(tmp_path: Path) -> None:
    """Two tenants with one key: whose request would it be?"""
    key = "ab" * 32
    text = f"backends: [{{url: 'http://x'}}]\nadmission: {{tenants: {{a: {{keys: [{key}]}}, b: {{keys: [{key}]}}}}}}\n"
    assert "a key shows one tenant" in _problems(tmp_path, text)
    found = _load(
        tmp_path, f"backends: [{{url: 'http://x'}}]\nadmission: {{tenants: {{a: {{keys: [{key}]}}}}}}\n"
    )
    assert found.keys() == {key: "a"}


def test_what_a_file_says_of_who_asks(tmp_path: Path) -> None:
    """Keys and priorities of tenants, of those that are not named, and of requests without one; `--service` where it names none."""
    text = """
backends: [{url: 'http://x'}]
admission:
  tenants: {acme: {priority: real_time, keys: [%s]}, beta: {}}
  default_tenant: {priority: near_real_time}
  without_tenant: {priority: batch}
  priority_from: [10.0.0.0/8]
"""
    says = _load(tmp_path, text % ("ab" * 32)).says("chat")
    assert (says.service, says.keys) == ("chat", {"ab" * 32: "acme"})
    found = {name: says.grant(name, proven=False, free=False).setting for name in ("acme", "beta", "x", None)}
    assert list(found.values()) == ["real_time", None, "near_real_time", "batch"]
    assert _load(tmp_path, "service: web\n" + text % ("cd" * 32)).says("chat").service == "web"
    assert "keys" in _problems(
        tmp_path, "backends: [{url: 'http://x'}]\nadmission: {default_tenant: {keys: []}}\n"
    )


@settings(max_examples=examples(300))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*BalancerDocument.model_fields, "url", "x"]) | st.text(), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_anything_is_read_or_refused(value: object) -> None:
    """Whatever is in a file: a document, or problems in words."""
    with suppress(PolicyError):
        config.checked(value, "file", None)


def test_latency_ejects_unless_the_file_says_otherwise() -> None:
    """And the switch is of nothing else."""
    backends = [{"url": "http://a"}]
    on = health_settings(checked({"backends": backends}, "test", None))
    off = health_settings(checked({"backends": backends, "ejection": {"latency": False}}, "test", None))
    assert on == HealthSettings(checks=on.checks)
    assert off == replace(on, latency_factor=None)


@pytest.mark.parametrize(
    "keys", ["[55512345678]", "55512345678", "[sk-55512345678]", "{sk-55512345678: x}", "[[55512345678]]"]
)
def test_keys_that_are_none_are_not_repeated(keys: str, tmp_path: Path) -> None:
    """Who writes a key where its digest belongs finds it in no log.

    cdelmonte-zg/nanoidp issue 352: "A non-string secret in settings.yaml is echoed in the startup and reload tracebacks".
    """
    said = _problems(
        tmp_path,
        f"backends: [{{url: 'http://127.0.0.1:9'}}]\nadmission: {{tenants: {{a: {{keys: {keys}}}}}}}\n",
    )
    assert "admission.tenants.a.keys: must be a list of the SHA-256 of tokens" in said
    assert "55512345678" not in said

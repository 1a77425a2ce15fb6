"""A real API server takes every object of the chart, as strictly as it can (`tests.containers.apiserver`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.containers import apiserver
from tests.containers.chart import CASES, rendered
from tests.containers.schemas import FOLDER
from tests.system.harness import eventually
from tests.tools import tool

pytestmark = [pytest.mark.drill, pytest.mark.timeout(3600)]
_CUSTOM = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}
_OWN = frozenset(
    {"Deployment", "DaemonSet", "StatefulSet", "Service", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget"}
)
"""Of Kubernetes; their plural ends in `s`, or in `ies`."""
_ON_NODES = "nodes"
"""The case whose edges take ports of their nodes, which `restricted` does not allow."""


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """An API server that knows the kinds of Prometheus' operator as the chart's schemas describe them."""
    why = apiserver.missing()
    if why is not None:
        pytest.skip(why)
    tool("go")
    apiserver.build()
    with apiserver.running(tmp_path_factory.mktemp("apiserver")) as client:
        for kind, plural in _CUSTOM.items():
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            client.post(path, json=_definition(kind, plural)).raise_for_status()
            served = f"/apis/monitoring.coreos.com/v1/{plural}"
            eventually(lambda served=served: client.get(served).status_code == 200, f"{plural} are served")
        yield client


def _definition(kind: str, plural: str) -> dict[str, Any]:
    """The definition of a custom resource."""
    schema = json.loads((FOLDER / f"{kind.lower()}-monitoring-v1.json").read_text())
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _structural(schema)},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": spec,
    }


def _structural(schema: Any) -> Any:
    """A schema as Kubernetes wants those of custom resources, which are closed by themselves."""
    if isinstance(schema, list):
        return [_structural(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _structural(one) for name, one in schema.items() if one is not False}
    if isinstance(made.get("type"), list):
        del made["type"]
        made["x-kubernetes-int-or-string"] = True
    if isinstance(made.get("enum"), list):
        made.setdefault("type", "string")
    return made


def _collection(one: dict[str, Any], namespace: str) -> str:
    group, kind = one["apiVersion"], one["kind"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    assert kind in _OWN or kind in _CUSTOM, kind
    plain = kind.lower()
    plural = f"{plain[:-1]}ies" if plain.endswith("y") else f"{plain}s"
    return f"{root}/namespaces/{namespace}/{_CUSTOM.get(kind, plural)}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_charts_objects_are_created(case: Any, kubernetes: httpx.Client) -> None:
    """Each of them, and no field is unknown or there twice; Pod Security's `restricted` has nothing to say but of ports of nodes."""
    labels = {"pod-security.kubernetes.io/warn": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.stem, "labels": labels}}
    kubernetes.post("/api/v1/namespaces", json=namespace).raise_for_status()
    objects = [one for one in yaml.safe_load_all(rendered(case)) if one]
    assert objects
    said = {}
    for one in objects:
        one["metadata"].pop("namespace", None)
        made = kubernetes.post(_collection(one, case.stem), params={"fieldValidation": "Strict"}, json=one)
        assert made.status_code == 201, f"{one['kind']} {one['metadata']['name']}: {made.text}"
        if "warning" in made.headers:
            said[one["kind"]] = made.headers["warning"]
    if case.stem == _ON_NODES:
        assert said.keys() == {"DaemonSet"}
        assert "hostPort" in said["DaemonSet"]
    else:
        assert said == {}
    print(f"{len(objects)} objects")

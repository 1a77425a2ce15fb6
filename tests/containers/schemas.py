"""Writes anew what Kubernetes says of the kinds that the chart makes (needs Go): `python -m tests.containers.schemas`.

It is taken from the API description of a release of Kubernetes, without what is for people, and closed: kubeconform then finds a field that
there is not. A kind of Prometheus' operator is described by hand beside these, as far as the chart uses it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.go_programs import module

FOLDER = Path(__file__).with_name("schemas")
RELEASE = "v1.36.3"
KINDS = {
    "io.k8s.api.apps.v1.DaemonSet": "daemonset-apps-v1",
    "io.k8s.api.apps.v1.Deployment": "deployment-apps-v1",
    "io.k8s.api.apps.v1.StatefulSet": "statefulset-apps-v1",
    "io.k8s.api.core.v1.ConfigMap": "configmap-v1",
    "io.k8s.api.core.v1.Service": "service-v1",
    "io.k8s.api.networking.v1.NetworkPolicy": "networkpolicy-networking-v1",
    "io.k8s.api.policy.v1.PodDisruptionBudget": "poddisruptionbudget-policy-v1",
}
"""Definition → the file that kubeconform asks for."""
_REF = "#/definitions/"
_EITHER = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}
"""What the description calls a string, and numbers are taken for, too."""


def main() -> None:
    """Read the description, and write what is needed of it."""
    swagger = module("k8s.io/kubernetes", RELEASE) / "api" / "openapi-spec" / "swagger.json"
    described: dict[str, Any] = json.loads(swagger.read_text())["definitions"]
    needed: dict[str, Any] = {}
    found = [*KINDS]
    while found:
        name = found.pop()
        if name not in needed:
            needed[name] = _EITHER.get(name) or _closed(described[name])
            found += re.findall(rf'"{_REF}([^"]+)"', json.dumps(needed[name]))
    FOLDER.joinpath("_definitions.json").write_text(_written({"definitions": needed}))
    for definition, file in KINDS.items():
        FOLDER.joinpath(f"{file}.json").write_text(_written({"$ref": f"_definitions.json{_REF}{definition}"}))


def _closed(schema: Any, *, named: bool = False) -> Any:
    """A schema without words, whose objects have no fields but theirs.

    Args:
        schema: of an object, a field or a part of one.
        named: its members are fields, whatever they are called.
    """
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _closed(value, named=name == "properties" and not named)
        for name, value in schema.items()
        if named or not (name == "description" or name.startswith("x-kubernetes-"))
    }
    if not named and "properties" in kept:
        kept.setdefault("additionalProperties", False)
    return kept


def _written(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    main()

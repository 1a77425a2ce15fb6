"""`deploy/helm/gtm`: what its pods tell gtm is what gtm is told. `make chart` holds the rest."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.containers import apiserver
from tests.containers.chart import CASES, CHART, ROOT, rendered
from tests.containers.schemas import RELEASE
from tests.containers.settings import unknown
from tests.tools import tool


def pods(case: Path) -> dict[str, Any]:
    """The pods that the chart makes of values, by their objects' names."""
    tool("go")
    objects = [one for one in yaml.safe_load_all(rendered(case)) if one]
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in objects
        if "template" in one.get("spec", ())
    }


@pytest.mark.drill
@pytest.mark.timeout(1200)  # the first one builds Helm, if `make chart` has not
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_gtm_takes_what_pods_tell_it(case: Path) -> None:
    """Arguments and variables are those of the command; no secret is a variable; what is mounted is there."""
    found = pods(case)
    assert found
    for name, pod in found.items():
        (container,) = pod["containers"]
        variables = {one["name"] for one in container["env"]}
        assert unknown(container["args"], variables) == set(), name
        assert not variables & {"GTM_TOKEN", "GTM_DATABASE_URL", "GTM_OIDC_CLIENT_SECRET"}, name
        volumes = {one["name"] for one in pod["volumes"]}
        assert {one["name"] for one in container["volumeMounts"]} <= volumes | {"data"}, name


@pytest.mark.drill
@pytest.mark.timeout(1200)  # the first one builds Helm, if `make chart` has not
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("edge: {exposed: HostPort}", "exposed"),
        ("control: {settings: {GTM_AUDIT_DAYS: 30}}", "string"),
        ("control: {settings: {AUDIT_DAYS: '30'}}", "AUDIT_DAYS"),
        ("control: {enabled: false}", "controlUrl: say where control is"),
        (
            "balancers: [{name: eu, region: eu, token: {secret: eu, key: token}}]",
            "give `backends`, `pool` or `config`",
        ),
    ],
)
def test_wrong_values_are_told(values: str, why: str, tmp_path: Path) -> None:
    """What no chart can be made of is refused, with what is wrong."""
    tool("go")
    case = tmp_path / "values.yaml"
    case.write_text(values)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(case)
    assert why in refused.value.stderr


def test_versions_and_rules_are_gtms() -> None:
    """The chart is of this version, and its alerts are those of `deploy/prometheus`."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["appVersion"]}"\n' in (ROOT / "pyproject.toml").read_text()
    rules = CHART / "files" / "gtm.rules.yaml"
    assert rules.resolve() == ROOT / "deploy" / "prometheus" / "gtm.rules.yaml"


def test_the_api_server_is_of_the_release_that_the_chart_is_held_against() -> None:
    """Its own go.mod says it, beside those of the `staging` modules."""
    assert f"\n\tk8s.io/kubernetes {RELEASE}\n" in (apiserver.HERE / "go.mod").read_text()

"""What a distribution holds. That it runs alone is for `make wheel-test`, which has to download what it declares."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.release.wheel import CHECKOUT, build, held, wanted


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the sdist."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.mark.drill
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package, the migrations and the demo policy; no tests, nothing compiled."""
    assert held(wheel) == wanted(CHECKOUT)
    needed = {
        "gtm/py.typed",
        "gtm/_migrations/env.py",
        "gtm/_policies/demo/expect.yaml",
        "gtm/documents/data/jurisdictions.yaml",
        "gtm/http/data/beacon.js",
        "gtm/geoip/data/gtm-location.mmdb",
        "gtm/geoip/data/LICENSE-DB-IP.txt",
    }
    assert held(wheel) >= needed


@pytest.mark.drill
def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    """Its name is free on PyPI, its command and its import name are `gtm`, and its licence comes with it."""
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(f"{info}/METADATA").decode()
        commands = archive.read(f"{info}/entry_points.txt").decode()
        names = set(archive.namelist())
    assert "\nName: gtm-service\n" in metadata
    assert "gtm = gtm.cli:main" in commands
    assert f"{info}/licenses/LICENSE" in names

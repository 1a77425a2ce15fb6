"""`gtm init`: with the least that it asks for, a policy that is sound and does what is expected of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.countries import COUNTRIES
from gtm.documents.cities import UnknownCityError, cities, city, folded
from gtm.documents.plausibility import plausibility
from tests import worlds
from tests.cli.conftest import Gtm

FRANKFURT = "Frankfurt=https://fra.example.com,192.0.2.10"
VIRGINIA = "ashburn=https://iad.example.com,192.0.2.20"


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--zone", "example.com", "--name-server", "192.0.2.53"),
        (
            "--zone",
            "example.com",
            "--name-server",
            "192.0.2.53",
            "--gdpr",
            "--slots",
            "64",
            "--service",
            "chat",
        ),
        ("--no-gdpr", "--probe-path", "/ready"),
    ],
)
def test_what_it_writes_is_sound(bare: Gtm, tmp_path: Path, more: tuple[str, ...]) -> None:
    """The folder passes `gtm check`, expectations included, and each city's clients are expected to be served there."""
    folder = tmp_path / "mine"
    done = bare.ok("init", folder, "--region", FRANKFURT, "--region", VIRGINIA, *more)
    assert "gtm check" in done.out.replace(str(tmp_path), "")
    told = bare.ok("check", folder, "--json").json
    assert told["ok"]
    assert [item["passed"] for item in told["expectations"]] == [True, True]
    assert {finding["code"] for finding in told["findings"]} <= {
        "bounds_nothing",
        "no_rule",
        "drain_empties",
        "redirect_loses_keys",
    }
    assert (folder / "gdpr.yaml").exists() == ("--gdpr" in more)


def test_balancers_without_addresses_are_aliases(bare: Gtm, tmp_path: Path) -> None:
    """Over DNS by the URL's host; places that are not known by name by their coordinates."""
    places = (
        "--region",
        "Paris=https://cdg.example.com",
        "--region",
        "lab@DE,50.1,8.7=https://lab.example.com/v1",
    )
    bare.ok("init", tmp_path / "p", *places, "--zone", "x.example", "--name-server", "192.0.2.1")
    assert "cname: cdg.example.com" in (tmp_path / "p" / "regions.yaml").read_text()
    assert bare.ok("check", tmp_path / "p", "--json").json["ok"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say where regions are"),
        (("--region", "Frankfrut=https://a.test"), "did you mean Frankfurt"),
        (("--region", "Frankfurt"), "CITY=URL"),
        (("--region", FRANKFURT, "--region", FRANKFURT), "two regions would be called `frankfurt`"),
        (("--region", FRANKFURT, "--zone", "example.com"), "--zone needs --name-server"),
        (("--region", VIRGINIA, "--gdpr"), "none of the regions is in the EEA"),
        (("--region", "Frankfurt=https://a.test,192.0.2"), "nothing was written"),
        (("--region", "x@XX,1,2=https://a.test"), "nothing was written"),
    ],
)
def test_what_cannot_be_written_is_said(
    bare: Gtm, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """With what to write instead; and nothing is left behind."""
    done = bare("init", tmp_path / "p", *arguments)
    assert done.code == 2
    assert words in " ".join(done.err.split())
    assert not (tmp_path / "p").exists()


def test_swapped_coordinates_are_said(bare: Gtm, tmp_path: Path) -> None:
    """As `gtm check` says it, and at once."""
    done = bare.ok("init", tmp_path / "p", "--region", "lab@DE,8.7,50.1=https://a.test")
    assert "seem to be swapped" in " ".join(done.err.split())


def test_no_policy_is_overwritten(bare: Gtm, tmp_path: Path) -> None:
    """A folder that has YAML already stays as it is."""
    (tmp_path / "a.yaml").write_text("regions: []\n")
    assert "nothing was written" in bare("init", tmp_path, "--region", FRANKFURT).err
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_cities_are_where_they_are() -> None:
    """Each in a country that exists, near where that has addresses, under a name of its own."""
    known = cities()
    for found in known.values():
        assert found.country in COUNTRIES
        region = worlds.region("r", at="de", lat=found.lat, lon=found.lon, country=found.country)
        assert list(plausibility(worlds.policy(region))) == []
    assert city("São  Paulo") == city("sao-paulo") == known["saopaulo"]
    with pytest.raises(UnknownCityError, match="did you mean Zurich"):
        city("Zurcih")


@given(st.text(max_size=60))
def test_any_name_is_a_city_or_not(name: str) -> None:
    """Whatever people type."""
    assert folded(name).isalnum() or not folded(name)
    try:
        found = city(name)
    except UnknownCityError:
        return
    assert folded(found.name) == folded(name)


def test_versions_and_completion(bare: Gtm) -> None:
    """`--version` as other programs have it; a shell's completion can be installed."""
    assert bare.ok("--version").out.startswith("gtm ")
    assert "--install-completion" in bare.ok("--help").out

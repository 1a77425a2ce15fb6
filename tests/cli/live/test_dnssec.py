"""`gtm dnssec` against a real control tier."""

from __future__ import annotations

import pytest

from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.servers.declared import Given
from gtm.options import resolver
from gtm.settings import ControlSettings
from tests.api.conftest import ZONE
from tests.cli.conftest import Gtm


@pytest.fixture
def signed(run: Gtm, tmp_path_factory: pytest.TempPathFactory) -> Gtm:
    """`gtm` with a signed zone in the policy."""
    folder = tmp_path_factory.mktemp("policy")
    fields = "".join(f"    {name}: {value}\n" for name, value in ZONE.items())
    (folder / "zones.yaml").write_text(f"zones:\n  - name: demo.test\n{fields}    dnssec: true\n")
    run.ok("apply", folder, "--yes", "--no-wait")
    return run


def test_no_signed_zone(run: Gtm) -> None:
    """Without signed zones the table says how to get one, and what is asked of a zone is bad input."""
    assert "set `dnssec: true`" in run.ok("dnssec", "status").out
    assert run.ok("dnssec", "status", "--json").json == {"items": [], "problem": ""}
    for command in (("status", "demo.test"), ("roll", "demo.test", "--zsk"), ("withdraw", "demo.test")):
        done = run("dnssec", *command)
        assert (done.code, "set `dnssec: true`" in done.err) == (Exit.BAD_INPUT, True)


def test_status_and_ds(signed: Gtm) -> None:
    """The state names each key; the record for the parent stands alone on its line."""
    found = signed.ok("dnssec", "status", "demo.test", "--json").json
    tags = [str(key["tag"]) for key in found["keys"]]
    assert f"ksk {tags[0]} published, zsk {tags[1]} active" in signed.ok("dnssec", "status").out
    lines = signed.ok("dnssec", "status", "demo.test").out.splitlines()
    assert found["ds"][0] in lines
    assert any(line.startswith("for the parent, from 20") for line in lines)


def test_rolls(signed: Gtm) -> None:
    """Keys are rolled one at a time, and what cannot be done yet is told with a reason."""
    rolled = signed.ok("dnssec", "roll", "demo.test", "--zsk", "--json").json
    assert [key["role"] for key in rolled["keys"]] == ["ksk", "zsk", "zsk"]
    again = signed("dnssec", "roll", "demo.test", "--zsk")
    assert (again.code, "is being replaced already" in again.err) == (Exit.BAD_INPUT, True)
    assert "yes" in signed.ok("dnssec", "roll", "demo.test", "--zsk", "--urgent").out
    early = signed("dnssec", "roll", "demo.test", "--ds-seen")
    assert (early.code, "waits for its DS record" in early.err) == (Exit.BAD_INPUT, True)
    assert len(signed.ok("dnssec", "roll", "demo.test", "--ksk", "--json").json["keys"]) == 4


def test_withdraw(signed: Gtm) -> None:
    """Withdrawing says what comes next, and can be taken back."""
    assert "the parent to drop its DS records" in signed.ok("dnssec", "withdraw", "demo.test").out
    assert "demo.test. 3600 IN DS" in signed.ok("dnssec", "withdraw", "demo.test", "--undo").out


@pytest.mark.parametrize("flags", [(), ("--zsk", "--ksk"), ("--ds-seen", "--urgent"), ("--urgent",)])
def test_one_thing_at_a_time(bare: Gtm, flags: tuple[str, ...]) -> None:
    """A roll is of one key, or confirms a DS record."""
    assert bare("dnssec", "roll", "demo.test", *flags).code == Exit.BAD_INPUT


def test_resolvers() -> None:
    """The option takes an address with or without a port, or nothing."""
    assert resolver("") is None
    assert resolver("[2001:db8::53]:5353") == ("2001:db8::53", 5353)
    with pytest.raises(CommandError, match="--dnssec-resolver: `resolver"):
        Given({"dnssec_resolver": "resolver.test"}).settings(ControlSettings)

"""How servers start: what they refuse before they serve, and what they say once they are ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from gtm.cli.common.exits import Exit
from gtm.cli.servers.welcome import welcome
from gtm.runtime.serve.supervisor import Running
from gtm.storage import migrate
from tests.cli.conftest import Gtm


def test_control_without_schema(bare: Gtm, empty_database_url: str) -> None:
    """Told not to migrate, control names the missing schema and the command that makes it, and changes nothing."""
    done = bare("control", "--no-prepare", "--control-port", "0", GTM_DATABASE_URL=empty_database_url)
    assert done.code == Exit.CANNOT_RUN
    assert "gtm db upgrade" in done.err
    assert migrate.current(empty_database_url) is None


def test_edge_without_token(bare: Gtm) -> None:
    """The command that makes an edge's token is complete as printed."""
    done = bare("edge")
    assert done.code == Exit.NOT_ALLOWED
    assert "gtm token create NAME --role edge" in done.err


@pytest.mark.parametrize(
    ("embedded", "said"), [(True, "--data-dir '/with space'"), (False, "GTM_DATABASE_URL")]
)
def test_way_back_to_a_token(capsys: pytest.CaptureFixture[str], embedded: bool, said: str) -> None:
    """From the second start on, the page tells how a new admin token is made on the Postgres in use."""
    welcome(
        Running(
            data_dir=Path("/with space"),
            control="http://127.0.0.1:8080",
            edge="http://127.0.0.1:8081",
            dns="127.0.0.1:5300",
            regions=("eu-central",),
            admin_token=None,
            dashboard="http://127.0.0.1:8080/sign-in/x",
            embedded=embedded,
        )
    )
    page = capsys.readouterr().out
    rescue = next(line for line in page.splitlines() if "token create rescue" in line)
    assert said in rescue
    assert ("--data-dir" in rescue) is embedded


def test_an_edge_sends_its_token_to_other_machines_over_tls_alone(bare: Gtm, tmp_path: Path) -> None:
    """It does not start, and says what to do."""
    done = bare("edge", "--control", "http://192.0.2.1:8080", "--data-dir", tmp_path / "e", GTM_TOKEN="gtm_x")
    assert done.code == Exit.NOT_ALLOWED
    assert "use https, or set GTM_INSECURE_CONTROL=true" in done.err
    assert not (tmp_path / "e").exists()

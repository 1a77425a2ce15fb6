"""`gtm backup` and `gtm restore`, beside a running control."""

from __future__ import annotations

from pathlib import Path

from gtm.cli.common.exits import Exit
from tests.cli.conftest import Control, Gtm


def test_there_and_back(bare: Gtm, control: Control, tmp_path: Path, empty_database_url: str) -> None:
    """Tokens work in the restored database as before, and what must not happen says why and changes nothing."""
    file = tmp_path / "monday"
    there, new = ("--database-url", control.database_url), ("--database-url", empty_database_url)
    done = bare.ok("backup", file, *there)
    assert f"{file}: " in done.out
    assert "keep it as you keep passwords" in done.err
    again = bare("backup", file, *there)
    assert (again.code, "name another file" in again.err) == (Exit.NO, True)
    assert bare("restore", file, *there).code == Exit.NO
    assert "nothing to back up" in bare("backup", tmp_path / "none", *new).err
    assert not (tmp_path / "none").exists()
    restored = bare.ok("restore", file, "--json", *new).json
    listed = [bare.ok("token", "list", "--direct", "--json", *at).json for at in (there, new)]
    assert listed[0] == listed[1]
    assert restored["revision"] >= 1
    missing = bare("restore", tmp_path / "missing", "--data-dir", tmp_path / "data")
    assert missing.code == Exit.NO
    assert "no such file" in missing.err
    assert not (tmp_path / "data").exists(), "looking makes nothing"

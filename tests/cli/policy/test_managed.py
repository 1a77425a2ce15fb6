"""What other tools manage, at the terminal: shown, warned of, changed on purpose, claimed for a folder, let go of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Gtm

ZONES = "tenants:\n- name: {name}\n  display_name: {words}\n"


def written(folder: Path, name: str, words: str) -> Path:
    """A folder with one tenant."""
    folder.mkdir(exist_ok=True)
    (folder / "tenants.yaml").write_text(ZONES.format(name=name, words=words))
    return folder


@pytest.fixture
def owned(run: Gtm, tmp_path: Path) -> Path:
    """A folder that `gtm-apply/ci` manages."""
    folder = written(tmp_path / "ci", "clinic", "Clinic")
    run.ok("apply", folder, "--yes", "--managed-by", "ci")
    return folder


def test_a_folder_is_claimed_and_others_are_stopped(run: Gtm, owned: Path, tmp_path: Path) -> None:
    """A plan says whose it is; an apply needs the flag, with a reason; the manager stays."""
    assert "gtm-apply/ci" in run.ok("managed", "list").out
    assert "clinic" in run.ok("managed", "list", "gtm-apply/ci").out
    other = written(tmp_path / "mine", "clinic", "Mine")
    said = run.ok("plan", other)
    assert "managed: tenant clinic is managed by gtm-apply/ci since 20" in said.out
    assert "--on-managed override" in said.out
    refused = run("apply", other, "--yes")
    assert refused.code == 2
    assert "tenant clinic is managed by gtm-apply/ci" in refused.err
    assert run("apply", other, "--yes", "--on-managed", "override").code == 2
    done = run.ok("apply", other, "--yes", "--on-managed", "override", "--reason", "incident 42")
    assert "its next run will undo this unless its code changes too" in done.err
    assert "overrides gtm-apply/ci: incident 42" in run.ok("revisions", "list").out
    assert "gtm-apply/ci" in run.ok("managed", "list").out
    run.ok("apply", owned, "--yes", "--managed-by", "ci")
    assert run("revisions", "rollback", 3, "--yes").code == 2
    run.ok("revisions", "rollback", 3, "--yes", "--managed-by", "ci")
    taken = ("--managed-by", "mine", "--on-managed", "take-over", "--reason", "moved")
    assert run("apply", other, "--yes", "--managed-by", "mine").code == 2
    assert "no changes" in run.ok("apply", other, "--yes", *taken).out
    assert "gtm-apply/mine" in run.ok("managed", "list").out


def test_only_own(run: Gtm, owned: Path, tmp_path: Path) -> None:
    """Two folders beside each other, that may refer to each other's resources."""
    second = written(tmp_path / "second", "bank", "Bank")
    assert run("apply", second, "--yes", "--only-own").code == 2
    assert run("apply", second, "--yes", "--managed-by", "second").code == 2
    run.ok("apply", second, "--yes", "--managed-by", "second", "--only-own")
    written(second, "insurer", "Insurer")
    said = run.ok("plan", second, "--managed-by", "second", "--only-own").out
    assert "- tenant bank deleted" in said
    assert "clinic" not in said
    (second / "rules.yaml").write_text(
        "residency_rules:\n- name: home\n  match: {tenants: [clinic]}\n  allow: {jurisdictions: [EEA]}\n"
    )
    run.ok("apply", second, "--yes", "--managed-by", "second", "--only-own")
    assert run("apply", owned, "--yes", "--managed-by", "ci").code == 2
    assert run.ok("apply", owned, "--yes", "--managed-by", "ci", "--only-own").code == 0


def test_letting_go(run: Gtm, owned: Path) -> None:
    """Handed over and released, some of it or all."""
    run.ok("managed", "hand-over", "gtm-apply/ci", "terraform/prod", "tenants/clinic", "--reason", "moved")
    assert run("managed", "release", "gtm-apply/ci", "--reason", "gone").code == 2
    assert run("managed", "release", "terraform/prod", "clinic", "--reason", "gone").code == 2
    assert "1 resource released" in run.ok("managed", "release", "terraform/prod", "--reason", "gone").out
    assert "no tool manages anything" in run.ok("managed", "list").out
    assert run("apply", owned, "--yes", "--managed-by", "bad name").code == 2
    assert run.ok("managed", "list", "--json").json == []


def test_lists_show_it(run: Gtm, tmp_path: Path) -> None:
    """A column where something is managed, none elsewhere."""
    from tests.cli.conftest import DEMO

    run.ok("apply", DEMO, "--yes", "--managed-by", "ci")
    for command in (("regions", "list"), ("services", "list"), ("regions", "show", "eu-west")):
        assert "gtm-apply/ci" in run.ok(*command).out
    assert run.ok("regions", "list", "--json").json[0]["managed_by"]["manager"] == "gtm-apply/ci"
    run.ok("regions", "drain", "us-east", "--no-wait")
    run.ok("managed", "release", "gtm-apply/ci", "--reason", "test")
    for command in (("regions", "list"), ("services", "list"), ("regions", "show", "eu-west")):
        assert "managed by" not in run.ok(*command).out

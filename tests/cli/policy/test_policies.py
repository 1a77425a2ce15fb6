"""`gtm plan`, `apply`, `export`, `revisions`, `regions` and `services` against a real control tier."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gtm.core.model.access import Role
from gtm.documents import yamls
from tests.cli.conftest import DEMO, Control, Gtm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the demo policy to change."""
    return Path(shutil.copytree(DEMO, tmp_path / "policy"))


def _shorten_ttl(folder: Path) -> None:
    file = folder / "services.yaml"
    file.write_text(file.read_text().replace("ttl: 30\n", "ttl: 20\n"))


def test_plan_apply_plan(run: Gtm) -> None:
    """What a plan shows is what apply does, after which there is nothing left to do."""
    planned = run.ok("plan", DEMO)
    assert "+ region eu-central created" in planned.out
    assert f"{DEMO}/services.yaml:31: services.web: no residency rule" in planned.err, "warnings have a place"
    assert run("plan", DEMO, "--exit-code").code == 1
    assert run.ok("plan", DEMO, "--json").json["dry_run"] is True
    assert run.ok("revisions", "list", "--json").json[0]["number"] == 1, "plans change nothing"
    applied = run.ok("apply", DEMO, "--yes", "--comment", "first")
    assert "revision 2: PENDING: no edge is connected" in applied.out
    assert run.ok("plan", DEMO, "--exit-code").out.startswith("no changes: revision 2")
    again = run.ok("apply", DEMO)
    assert "no changes" in again.out, "without changes nobody needs to be asked"
    newest = run.ok("revisions", "list", "--json").json[0]
    assert (newest["number"], newest["comment"], newest["author"]) == (2, "first", "admin-one")


def test_changed_fields_are_shown(run: Gtm, folder: Path) -> None:
    """Updates name each field with both values, deletions the resource."""
    run.ok("apply", folder, "--yes")
    _shorten_ttl(folder)
    (folder / "spillover.yaml").unlink()
    out = run.ok("plan", folder).out
    assert "~ service chat updated" in out
    assert "ttl: 30 → 20" in out
    assert "- spillover rule" in out
    changes = run.ok("plan", folder, "--json").json["changes"]
    assert {"path": "ttl", "before": 30, "after": 20} in changes[0]["fields"]


def test_export_is_what_apply_takes(run: Gtm, tmp_path: Path) -> None:
    """An export applied again changes nothing, be it a folder or one document; a drain made since stays."""
    run.ok("apply", DEMO, "--yes")
    target = tmp_path / "deep" / "export"
    done = run.ok("export", target)
    assert "revision 2 written" in done.out
    assert {path.name for path in target.iterdir()} >= {
        "regions.yaml",
        "services.yaml",
        "residency_rules.yaml",
    }
    one = tmp_path / "one.yaml"
    one.write_text(run.ok("export", "-").out)
    run.ok("regions", "drain", "us-east")
    for source in (target, one):
        assert "no changes" in run.ok("apply", source, "--yes").out
    assert run.ok("export", "-", "--json").json == yamls.load(one.read_text())[0] | {"jurisdictions": []}
    regions = yamls.load(run.ok("export", "-", "--admin-states").out)[0]["regions"]
    assert {item["name"] for item in regions if item["admin_state"] == "draining"} == {"us-east"}


def test_export_overwrites_only_its_own(run: Gtm, tmp_path: Path) -> None:
    """Existing policy files are replaced only if told so, and never joined by others that define the same."""
    run.ok("apply", DEMO, "--yes")
    target = tmp_path / "export"
    run.ok("export", target)
    refused = run("export", target)
    assert refused.code == 2
    assert "--overwrite" in refused.err
    _write(tmp_path / "less", {"regions": [], "tenants": [{"name": "clinic"}]})
    wrong = run("apply", tmp_path / "less", "--yes")
    assert wrong.code == 2
    assert f"is `{tmp_path / 'less'}` the right folder?" in wrong.err
    assert "deletion: this would delete 7 regions, 1 zone, 3 services" in wrong.err
    assert "role fence-admin" in wrong.err
    assert "right folder?" in run.ok("plan", tmp_path / "less").out
    run.ok("apply", tmp_path / "less", "--yes", "--force", "--reason", "all of it goes")
    run.ok("export", target, "--overwrite")
    assert yamls.load((target / "services.yaml").read_text()) == [{"services": []}]
    assert "no changes" in run.ok("apply", target, "--yes").out
    _write(target, {"tenants": []}, "mine.yml")
    assert run("export", target, "--overwrite").code == 2
    assert run("export", "/proc/nowhere").code == 2


def test_export_in_terraforms_language(run: Gtm, tmp_path: Path) -> None:
    """A file per kind, or one text; of the policy in force, or of a folder without a server. Nothing stale is left behind."""
    run.ok("apply", DEMO, "--yes")
    target = tmp_path / "terraform"
    hcl = ("--format", "hcl")
    done = run.ok("export", target, *hcl, "--imports")
    assert "revision 2 written to" in done.out
    files = {path.name: path.read_text() for path in target.iterdir()}
    assert 'resource "gtm_region" "eu_central" {' in files["regions.tf"]
    assert "to = gtm_region.eu_central" in files["imports.tf"]
    assert "jurisdictions.tf" not in files
    whole = run.ok("export", "-", *hcl).out
    unserved = run.ok("export", "-", *hcl, "--policy", DEMO, "--control", "http://127.0.0.1:1").out
    assert sorted(unserved.split("\n\n")) == sorted(whole.split("\n\n")), "control has another order"
    assert "import {" not in whole
    (target / "main.tf").write_text('provider "gtm" {}\n')
    assert "--overwrite" in run("export", target, *hcl).err
    listed = run.ok("export", target, *hcl, "--overwrite", "--json").json
    assert str(target / "imports.tf") in listed["files"]
    left = {path.name: path.read_text() for path in target.iterdir()}
    assert left.pop("main.tf") == 'provider "gtm" {}\n'
    assert left.pop("imports.tf").strip().startswith("#"), "what earlier imports were of may be gone"
    assert left == {name: text for name, text in files.items() if name != "imports.tf"}
    decomposed = {"tenants": [{"name": "cafe", "display_name": "Cafe\u0301"}]}
    _write(tmp_path / "other", decomposed)
    said = run.ok("export", "-", *hcl, "--policy", tmp_path / "other")
    assert 'display_name = "Caf\u00e9"' in said.out
    assert "tenants.cafe" in said.err


def test_export_says_which_options_do_not_go_together(run: Gtm) -> None:
    """Nothing is asked of control then, and nothing written."""
    hcl = ("--format", "hcl")
    for options, words in (
        (("--imports",), "--imports is for --format hcl"),
        (("--policy", DEMO), "--policy is for --format hcl"),
        ((*hcl, "--admin-states"), "no plan undoes a drain"),
        ((*hcl, "--json"), "leave out --format hcl or --json"),
        ((*hcl, "--policy", "/nowhere"), "cannot read `/nowhere`"),
    ):
        done = run("export", "-", *options)
        assert done.code == 2
        assert words in " ".join(done.err.split())
        assert done.out == ""


def _write(folder: Path, document: object, name: str = "policy.yaml") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(yamls.dump(document))


def test_bad_policy_changes_nothing(run: Gtm, folder: Path) -> None:
    """A policy with problems is refused with all of them before control is asked."""
    _write(folder, {"services": [{"name": "x", "members": [{"region": "atlantis"}]}]}, "bad.yaml")
    for command in (("plan", folder), ("apply", folder, "--yes")):
        done = run(*command)
        assert done.code == 2
        assert re.search(r"bad\.yaml:\d+: services\.x\.members\[0\]\.region", done.err)
    assert run.ok("revisions", "list", "--json").json[0]["number"] == 1
    assert run("apply", folder / "nowhere", "--yes").code == 2


def test_nobody_to_ask(run: Gtm) -> None:
    """Without a terminal, or with --json, changes need --yes."""
    done = run("apply", DEMO)
    assert done.code == 2
    assert "--yes" in done.err
    assert "+ region eu-central created" in done.out
    assert run("apply", DEMO, "--json").code == 2
    assert run("revisions", "rollback", "1").code == 2
    assert run.ok("revisions", "list", "--json").json[0]["number"] == 1


@pytest.mark.parametrize(("typed", "code", "revision"), [("n", 1, 1), ("y", 0, 2)])
def test_asks_at_a_terminal(run: Gtm, typed: str, code: int, revision: int) -> None:
    """At a terminal, apply shows the changes and does what it is told."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GTM_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "gtm.cli", "apply", str(DEMO)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment, **run.environment},
        text=True,
    )
    os.close(theirs)
    os.write(ours, f"{typed}\n".encode())
    out, err = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == code, err
    assert "+ region eu-central created" in out
    assert "Apply these changes? [y/N]" in err
    assert ("nothing was changed" in err) == (code == 1)
    assert run.ok("revisions", "list", "--json").json[0]["number"] == revision


def _report(control: Control, revision: int) -> None:
    """What an edge tells control, in an edge's name."""
    response = httpx.post(
        f"{control.url}/v1/edges/paris/report",
        json={"version": "1", "revision": revision, "epoch": 0, "health": {}},
        headers={"Authorization": f"Bearer {control.tokens[Role.EDGE]}"},
        trust_env=False,
    )
    assert response.status_code == 200, response.text


def test_waits_for_edges(run: Gtm, control: Control) -> None:
    """An edge that does not follow ends the wait with 1 and its name, though the change stands; --no-wait does not wait."""
    _report(control, 1)
    late = run("apply", DEMO, "--yes", "--timeout", "1")
    assert late.code == 1
    assert "PENDING: waiting for paris" in late.out
    assert "waiting for edge paris" in late.err
    assert run.ok("apply", DEMO, "--yes").code == 0
    unhurried = run.ok("regions", "drain", "eu-west", "--no-wait", "--json").json
    assert unhurried["sync"]["pending"] == ["paris"]
    _report(control, 4)
    assert "revision 4: IN_SYNC on 1 edge" in run.ok("regions", "activate", "eu-west").out
    status = run.ok("status")
    assert "IN_SYNC" in status.out
    assert "paris" in status.out
    assert run.ok("status", "--json").json["edges"][0]["name"] == "paris"


def test_regions(run: Gtm) -> None:
    """Regions are listed with their state and health, shown whole, and drained, disabled and activated."""
    assert "there are no regions" in run.ok("regions", "list").out
    assert "there are no services" in run.ok("services", "list").out
    run.ok("apply", DEMO, "--yes")
    for verb, state in (("drain", "draining"), ("disable", "disabled"), ("activate", "active")):
        assert f"us-east is {state}" in run.ok("regions", verb, "us-east").out
        listed = {item["name"]: item for item in run.ok("regions", "list", "--json").json}
        assert listed["us-east"]["admin_state"] == listed["us-east"]["health"]["admin_state"] == state
        assert ("draining since" in run.ok("regions", "show", "us-east").out) is (verb == "drain")
    assert "us-east is already active" in run.ok("regions", "activate", "us-east").out
    table = run.ok("regions", "list").out
    assert "unknown" in table, "nothing probes here"
    assert all(name in table for name in listed)
    shown = run.ok("regions", "show", "us-east")
    assert "http://127.0.1.3:9000" in shown.out
    assert run.ok("regions", "show", "us-east", "--json").json["country"] == "US"
    assert "chat.demo.test" in run.ok("services", "list").out
    assert {item["name"] for item in run.ok("services", "list", "--json").json} == {"chat", "records", "web"}


def test_unknown_region(run: Gtm) -> None:
    """A name that is none ends with 2, whatever it holds."""
    for name in ("atlantis", "..", ".", "../tokens", "a b", "a/b", "%2e%2e", "x?y", "Ä"):
        for verb in ("show", "drain"):
            done = run("regions", verb, name)
            assert done.code == 2, done
            assert done.err.startswith("error: ")


def test_revisions(run: Gtm, folder: Path) -> None:
    """Revisions can be listed, shown, compared and rolled back to; regions keep their admin states."""
    run.ok("apply", folder, "--yes", "--comment", "one")
    _shorten_ttl(folder)
    run.ok("apply", folder, "--yes", "--comment", "two")
    run.ok("regions", "drain", "us-west")
    table = run.ok("revisions", "list").out
    assert "services ~3" in table
    assert len(run.ok("revisions", "list", "--limit", "2", "--json").json) == 2
    shown = run.ok("revisions", "show", "2").out
    assert "# comment: one" in shown
    assert yamls.load(shown)[0]["services"][0]["ttl"] == 30
    assert run.ok("revisions", "show", "2", "--json").json["number"] == 2
    assert "ttl: 30 → 20" in run.ok("revisions", "diff", "3").out
    assert "ttl: 20 → 30" in run.ok("revisions", "diff", "2", "3").out
    assert "no differences" in run.ok("revisions", "diff", "2", "2").out
    assert run.ok("revisions", "diff", "2", "0", "--json").json["against"] == 0
    back = run.ok("revisions", "rollback", "2", "--yes", "--comment", "back")
    assert "ttl: 20 → 30" in back.out
    assert "admin_state" not in back.out
    assert "revision 5" in back.out
    regions = {item["name"]: item["admin_state"] for item in run.ok("regions", "list", "--json").json}
    assert regions["us-west"] == "draining"
    assert "no changes" in run.ok("revisions", "rollback", "2", "--yes").out
    for command in (("show", 99), ("diff", 99), ("rollback", 99, "--yes"), ("show", "x"), ("show", 0)):
        assert run("revisions", *command).code == 2


def test_a_change_in_between_is_not_undone(run: Gtm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If somebody changes the policy between what was shown and the answer, nothing is applied."""
    run.ok("apply", folder, "--yes")
    _shorten_ttl(folder)

    def meanwhile(*, yes: bool, as_json: bool) -> None:
        response = httpx.post(
            f"{run.environment['GTM_CONTROL_URL']}/v1/regions/us-west:drain",
            headers={"Authorization": f"Bearer {run.environment['GTM_TOKEN']}"},
            trust_env=False,
        )
        assert response.status_code == 200

    monkeypatch.setattr("gtm.cli.common.options.require_consent", meanwhile)
    done = run("apply", folder, "--yes")
    assert done.code == 2
    assert "revision 3 is in force, not 2" in done.err
    assert run.ok("revisions", "list", "--json").json[0]["number"] == 3


def test_roles(run: Gtm, control: Control) -> None:
    """A viewer's token reads and plans; to change takes an operator's."""
    viewer = {"GTM_TOKEN": control.tokens[Role.VIEWER]}
    assert run.ok("regions", "list", **viewer)
    assert "created" in run.ok("plan", DEMO, **viewer).out
    for command in (("apply", DEMO, "--yes"), ("regions", "drain", "us-east")):
        done = run(*command, **viewer)
        assert done.code == 4
        assert "operator" in done.err
    assert run("regions", "list", GTM_TOKEN=control.tokens[Role.EDGE]).code == 4

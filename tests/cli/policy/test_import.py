"""`gtm import`: files in, a folder and a list of what is missing out; nothing is written over."""

from __future__ import annotations

from pathlib import Path

from gtm.documents.folders import read_folder
from tests.cli.conftest import Gtm
from tests.documents.test_imports import CONFIG, GDNSD, OCTODNS, ROUTE53


def test_a_folder_is_written_and_the_rest_is_said(bare: Gtm, tmp_path: Path) -> None:
    """Each kind becomes a folder that `gtm check` refuses for what is asked for, and every note is printed."""
    for kind, text, more in (
        ("octodns", OCTODNS, ()),
        ("route53", ROUTE53, ()),
        ("gdnsd", GDNSD, ("--config", tmp_path / "config")),
    ):
        (tmp_path / "zone").write_text(text)
        (tmp_path / "config").write_text(CONFIG)
        out = tmp_path / kind
        done = bare("import", kind, tmp_path / "zone", "--zone", "Example.com.", "--out", out, *more)
        assert done.code == 1
        assert "not taken over" in done.out
        assert {file.name for file in out.iterdir()} == {"zones.yaml", "regions.yaml", "services.yaml"}
        assert {problem.code for problem in read_folder(out).problems} == {"missing"}
        again = bare("import", kind, tmp_path / "zone", "--zone", "example.com", "--out", out, *more)
        assert again.code == 2
        assert "holds regions.yaml, services.yaml, zones.yaml already" in again.err
        arguments = (kind, tmp_path / "zone", "--zone", "example.com", "--out", f"{out}2", "--json", *more)
        told = bare.ok("import", *arguments, "--accept-losses").json
        assert len(told["files"]) == 3
        for note in told["not_taken_over"] + told["in_other_words"]:
            assert note.startswith("zone:")
            assert note.rpartition(": ")[2] in done.out


def test_a_file_that_is_in_the_policy_as_a_whole_ends_with_0(bare: Gtm, tmp_path: Path) -> None:
    """What is only said in other words, such as the SOA's serial, is no loss; a record outside of the zone is one."""
    text = "$TTL 60\n@ SOA ns1 h ( 1 2 3 4 5 )\n@ NS ns1.example.net.\n"
    (tmp_path / "zone").write_text(text)
    done = bare.ok("import", "zonefile", tmp_path / "zone", "--zone", "example.com", "--out", tmp_path / "a")
    assert "in other words" in done.out
    assert "not taken over" not in done.out
    (tmp_path / "zone").write_text(f"{text}www.example.org. A 192.0.2.1\n")
    done = bare("import", "zonefile", tmp_path / "zone", "--zone", "example.com", "--out", tmp_path / "b")
    assert (done.code, (tmp_path / "b" / "zones.yaml").exists()) == (1, True)
    assert "zone:4: www.example.org. A: not taken over" in done.out


def test_another_zones_file_writes_nothing(bare: Gtm, tmp_path: Path) -> None:
    """A file of which nothing can be taken is a mistake, and no policy."""
    (tmp_path / "zone").write_text(ROUTE53)
    for arguments in (("route53", "--zone", "example.org"), ("octodns", "--zone", "example.com")):
        done = bare("import", arguments[0], tmp_path / "zone", *arguments[1:], "--out", tmp_path / "out")
        assert done.code == 2
        assert "can be taken over: is it of zone" in done.err
        assert not (tmp_path / "out").exists()


def test_what_cannot_be_read_writes_nothing(bare: Gtm, tmp_path: Path) -> None:
    """One message with the reason, exit code 2, and no folder."""
    (tmp_path / "zone").write_text("www A nonsense\n")
    (tmp_path / "octets").write_bytes(b"\xff\xfe")
    for arguments, reason in (
        (("gdnsd", tmp_path / "zone"), "about line 1"),
        (("route53", tmp_path / "zone"), "not JSON"),
        (("octodns", tmp_path / "octets"), "UTF-8"),
        (("octodns", tmp_path / "none"), "no such file"),
        (("octodns", tmp_path / "zone", "--config", tmp_path / "zone"), "gdnsd alone"),
    ):
        done = bare("import", *arguments, "--zone", "example.com", "--out", tmp_path / "out")
        assert done.code == 2
        assert reason in done.err
        assert not (tmp_path / "out").exists()
    assert bare("import", "octodns", tmp_path / "zone", "--zone", "-", "--out", tmp_path / "out").code == 2

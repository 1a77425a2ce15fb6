"""`gtm balancer --check-paths`: what a balancer would refuse of the requests in a log, before it does."""

from __future__ import annotations

from pathlib import Path

from gtm.balancer.wire.endpoints import INFERENCE, Paths
from gtm.cli.servers.checks import count
from tests.cli.conftest import Gtm

LINES = [
    b'{"time":"2026-11-26T00:00:00Z","outcome":"answered","method":"POST","path":"/v1/chat/completions"}\n',
    b'192.0.2.1 - - [26/Nov/2026:00:00:00 +0000] "POST /sleep?level=1 HTTP/1.1" 200 12 "-" "curl/8"\n',
    b'192.0.2.1 - - [26/Nov/2026:00:00:00 +0000] "GET /v1/models HTTP/1.1" 200 12\n',
    b"{broken\n",
    b"\xff\n",
]


def test_logs_of_all_forms() -> None:
    """Gtm's own lines, and those of the Common and the Combined Log Format."""
    found = count(LINES, Paths([INFERENCE]))
    assert (dict(found.refused), found.carried, found.others) == ({("POST", "/sleep", 404): 1}, 2, 2)
    assert dict(found.unnamed) == {("POST", "/v1/chat/completions"): 1}
    assert count(LINES, None).carried == 3
    named = LINES[0].replace(b'"path"', b'"model":"big","path"')
    assert not count([named], None).unnamed


def test_the_command(bare: Gtm, tmp_path: Path) -> None:
    """By the list that a file without `paths` gets, and by a file's own."""
    log, file = tmp_path / "log", tmp_path / "balancer.yaml"
    log.write_bytes(b"".join(LINES))
    told = bare("balancer", "--check-paths", str(log))
    assert told.code
    assert "POST /sleep" in told.out
    assert "docs/balancer.md#paths" in told.err
    file.write_text("backends: [{url: 'http://127.0.0.1:1'}]\npaths: [inference, POST /sleep]\n")
    told = bare("balancer", "--check-paths", str(log), "--file", str(file))
    assert (told.code, told.out) == (0, "3 requests are carried, 0 refused; lines that are no requests: 2\n")
    told = bare("balancer", "--check-paths", str(tmp_path / "none"))
    assert told.code
    assert "none" in told.err
    file.write_text(
        "backends: [{url: 'http://127.0.0.1:1'}]\npaths: any\nadmission: {models: {big: {concurrency: 1}}}\n"
    )
    told = bare("balancer", "--check-paths", str(log), "--file", str(file))
    assert told.code == 0
    assert "1 of those carried had no model that was read: they will be refused" in told.out

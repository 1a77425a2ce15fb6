"""What an edge owns on its machine."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gtm.runtime.edge.agent.agent import EdgeOwnership
from gtm.runtime.process import lifeline
from gtm.settings import EdgeSettings


def settings(data_dir: Path, *, replace: bool = False) -> EdgeSettings:
    """An edge on any free ports."""
    return EdgeSettings(
        data_dir,
        control_url="http://127.0.0.1:9",
        token="token",
        name="edge",
        edge_port=0,
        dns_port=0,
        replace=replace,
    )


class _Released(EdgeOwnership):
    """What is given up at the end of a `with` block."""

    close = EdgeOwnership.release


def test_a_claim_excludes_others_until_it_is_released(tmp_path: Path) -> None:
    """A second edge is told who runs and what to do, also where it was to replace one that does not answer yet."""
    with closing(_Released(settings(tmp_path))) as first:
        first.take()
        assert not first.covered
        for replace, advice in ((False, "with --replace"), (True, "cannot be replaced")):
            with closing(_Released(settings(tmp_path, replace=replace))) as second:
                with pytest.raises(OSError, match=advice) as raised:
                    second.take()
                assert "already running" in str(raised.value)
    with closing(_Released(settings(tmp_path, replace=True))) as third:
        third.take()
        assert not third.inherited


def test_an_edge_with_a_supervisor_of_ours_has_no_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gtm serve` starts its edge again when it ends: nobody may take over from it while that lives."""
    monkeypatch.setenv(lifeline.ENVIRONMENT, "0")

    async def wait(owned: EdgeOwnership, gone: asyncio.Event) -> None:
        with suppress(TimeoutError):
            leave = owned.leave_to_successor(lambda: pytest.fail("nobody took over"), gone)
            await asyncio.wait_for(leave, 0.1)

    with closing(_Released(settings(tmp_path))) as owned:
        owned.take()
        gone = asyncio.Event()
        asyncio.run(wait(owned, gone))
        assert [path.name for path in tmp_path.iterdir()] == ["edge.lock"]
        gone.set()
        asyncio.run(wait(owned, gone))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["edge.lock", "edge.sock"]


def test_a_disk_that_refuses_a_socket_keeps_no_edge_from_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An edge that cannot be replaced says so, and goes on."""
    (tmp_path / "edge.sock" / "in the way").mkdir(parents=True)
    with closing(_Released(settings(tmp_path))) as owned:
        owned.take()
        asyncio.run(owned.leave_to_successor(lambda: pytest.fail("nobody took over"), asyncio.Event()))
    assert "cannot be replaced without a gap" in caplog.text


def test_what_a_killed_edge_had_half_written_is_cleared(tmp_path: Path) -> None:
    """Each kill would leave another: the files of the edge itself, and other people's, stay."""
    (tmp_path / "edge-last-good").write_bytes(b"kept")
    (tmp_path / "notes.tmp").write_bytes(b"kept")
    for number in (1, 2):
        (tmp_path / f"edge-last-good.{number}.tmp").write_bytes(b"half")
    with closing(_Released(settings(tmp_path))) as owned:
        owned.take()
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "edge-last-good",
            "edge.lock",
            "notes.tmp",
        ]

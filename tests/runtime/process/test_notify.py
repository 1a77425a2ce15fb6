"""What a service manager is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gtm.runtime.process.notify import notify_ready


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_hears_who_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    """The socket that NOTIFY_SOCKET names gets the main process and that it is ready, as sd_notify(3) says."""
    path = f"@gtm-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_ready()
        said = manager.recv(4096, socket.MSG_DONTWAIT).decode().splitlines()
    assert sorted(said) == [f"MAINPID={os.getpid()}", "READY=1"]


def test_no_service_manager_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a service manager nothing happens; one that is gone is a warning."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_ready()
    assert not caplog.records
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify_ready()
    assert len(caplog.records) == 1

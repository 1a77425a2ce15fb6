"""The file of backends: what is read of it, and when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gtm.core.model.problems import PolicyError
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.settings import LOOPBACK, BalancerSettings

A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"


def settings(data_dir: Path, file: Path | None, *backend: str) -> BalancerSettings:
    """Of a balancer that is asked for nothing but its backends."""
    return BalancerSettings(
        data_dir=data_dir,
        bind=("127.0.0.1",),
        geoip_db=None,
        geoip_overrides=None,
        metrics_allow=LOOPBACK,
        log_level="info",
        control_url="http://127.0.0.1:1",
        token="gtm_test",
        name="fra-1",
        region="fra",
        backend=backend,
        file=file,
        service="chat",
        balancer_port=0,
        admin_port=0,
        trusted_proxies=(),
        ca_file=None,
        drain_time=0.0,
        user=None,
    )


def put(file: Path, text: str, at: int) -> None:
    """Write a file as of some second."""
    file.write_text(text)
    os.utime(file, (at, at))


def test_a_change_is_taken_in_once_and_a_broken_file_never(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing new is no change; a broken file, or none, leaves what was there, and is told of once."""
    file = tmp_path / "backends.yaml"
    put(file, f"backends: [{{url: '{A}'}}]", 1)
    found = BackendsFile(settings(tmp_path, file))
    assert [one.url for one in found.document.backends] == [A]
    assert not found.changed()
    put(file, f"backends: [{{url: '{B}'}}]", 2)
    assert [found.changed(), found.changed()] == [True, False]
    assert [one.url for one in found.document.backends] == [B]
    put(file, "backends: 7", 3)
    assert [found.changed(), found.changed()] == [False, False]
    assert caplog.text.count("the file of backends cannot be used") == 1
    file.unlink()
    assert not found.changed()
    assert [one.url for one in found.document.backends] == [B]
    put(file, f"backends: [{{url: '{A}'}}]", 4)
    assert found.changed()


def test_without_a_file_backends_are_those_that_were_named(tmp_path: Path) -> None:
    """They never change; a file that is not right at the start is an error."""
    found = BackendsFile(settings(tmp_path, None, A, B))
    assert [one.url for one in found.document.backends] == [A, B]
    assert found.document.service == "chat"
    assert not found.changed()
    put(tmp_path / "wrong.yaml", "backends: 7", 1)
    with pytest.raises(PolicyError):
        BackendsFile(settings(tmp_path, tmp_path / "wrong.yaml"))

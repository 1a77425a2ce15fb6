"""`gtm` as typed at a terminal, but in this process; and a real control tier for it to talk to."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import gtm
from gtm.cli import main
from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Server

DEMO = Path(gtm.__file__).parent.parent / "policies" / "demo"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@contextmanager
def _logging_kept() -> Iterator[None]:
    """A server's command would leave a handler behind that writes to one test's captured output."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@dataclass
class Gtm:
    """Runs commands. `environment` holds the GTM_* variables they see, besides which there are none.

    Their data directory is `nowhere`, in which nothing has run: the default one may be that of a demo which runs in this checkout.
    Nor is there a control or an edge where they look: on the default ports there may be somebody's.
    """

    monkeypatch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]
    nowhere: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: object, **environment: str) -> Done:
        """Run `gtm ARGUMENTS`; keyword arguments are further variables."""
        self.capture.readouterr()
        with self.monkeypatch.context() as patch, _logging_kept():
            for name in [name for name in os.environ if name.startswith("GTM_")]:
                patch.delenv(name)
            nobody = dict.fromkeys(("GTM_CONTROL_URL", "GTM_EDGE_URL"), "http://127.0.0.1:9")
            own = {"GTM_DATA_DIR": str(self.nowhere), **nobody, **self.environment, **environment}
            for name, value in own.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["gtm", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main()
        said = self.capture.readouterr()
        assert "Traceback" not in said.err
        return Done(int(ended.value.code or 0), said.out, said.err)

    def ok(self, *arguments: object, **environment: str) -> Done:
        """Run a command that has to succeed."""
        done = self(*arguments, **environment)
        assert done.code == 0, (done.out, done.err)
        return done


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Gtm:
    """`gtm` without any server or setting."""
    return Gtm(monkeypatch, capsys, tmp_path / "nowhere")


@dataclass
class Control:
    """A running control tier and its tokens."""

    url: str
    database_url: str
    tokens: dict[Role, str]


@pytest.fixture
def control(prepared_url: str) -> Iterator[Control]:
    """A control tier on a database of the test's own, with the empty policy."""
    with Server(prepared_url) as server:
        yield Control(server.url, prepared_url, TOKENS)


@pytest.fixture
def run(bare: Gtm, control: Control) -> Gtm:
    """`gtm` with an admin's token for that control tier."""
    bare.environment = {"GTM_CONTROL_URL": control.url, "GTM_TOKEN": control.tokens[Role.ADMIN]}
    return bare

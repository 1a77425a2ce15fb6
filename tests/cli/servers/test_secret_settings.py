"""Every secret setting of every command, with odd bytes: what is printed never holds it. docs/operations.md, "Secrets"."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from gtm.api.problems import problem
from gtm.cli.common.exits import Exit
from gtm.options import options
from gtm.runtime.edge.agent.agent import cookie_secrets
from gtm.settings import BalancerSettings, ControlSettings, EdgeSettings
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database
from tests.cli.conftest import Control, Done, Gtm

MARK = "THISISTHESECRET"
SETTINGS: dict[str, tuple[Exit, str, list[str]]] = {
    "GTM_TOKEN": (
        Exit.NOT_ALLOWED,
        f"gtm_{MARK}",
        [
            "status",
            "route web",
            "edge",
            "balancer --region r --backend http://127.0.0.1:9",
            "token list",
            "report --region r",
        ],
    ),
    "GTM_DATABASE_URL": (
        Exit.BAD_INPUT,
        f"postgresql://gtm:{MARK}@127.0.0.1:1/gtm",
        ["db current", "db check", "token list --direct", "control", "serve"],
    ),
    "GTM_OIDC_CLIENT_SECRET": (Exit.BAD_INPUT, f"s3cret-{MARK}", ["control", "serve"]),
}
"""How a command ends whose setting cannot be, something like what is meant, and commands that read it."""
ODD = {
    "a line end inside": "{0}\n{0}",
    "CR inside": "{0}\r{0}",
    "an escape": "{0}\x1b[31m",
    "quotes": '"{0}"',
    "only spaces": " \t ",
    "only a mark": "\ufeff\r\n",
    "no UTF-8": "{0}\udcff",
    "a megabyte": "{0}" + MARK * 70_000,
}
CASES = [(name, command) for name, (_, _, commands) in SETTINGS.items() for command in commands]


def _silent(done: Done) -> Done:
    """Nothing that it printed holds a secret, and what went wrong is one line."""
    assert MARK[:6] not in done.out + done.err
    assert done.err.count("\n") <= 1, done.err
    return done


@pytest.mark.parametrize(("name", "command"), CASES, ids=" ".join)
def test_odd_bytes(name: str, command: str, bare: Gtm, tmp_path: Path) -> None:
    """In the variable, and in the file that another variable names: one line with the setting's name, and a code."""
    code, meant, _ = SETTINGS[name]
    file = tmp_path / "secret"
    for odd in ODD.values():
        text = odd.format(meant)
        file.write_bytes(text.encode(errors="surrogateescape"))
        for variables in ({name: text}, {f"{name}_FILE": str(file)}):
            done = _silent(
                bare(*command.split(), "--data-dir", tmp_path / "d", **variables)
                if "--data-dir" in _options(command)
                else bare(*command.split(), **variables)
            )
            assert done.code == code, (odd, done)
            assert done.err.startswith(f"error: {name}"), (odd, done)
    file.write_text(meant)
    both = _silent(bare(*command.split(), **{name: meant, f"{name}_FILE": str(file)}))
    assert (both.code, both.err) == (
        code,
        f"error: {name} and {name}_FILE are both given: keep one of them\n",
    )
    none = _silent(bare(*command.split(), **{f"{name}_FILE": str(tmp_path)}))
    assert (none.code, none.err.partition(";")[0]) == (
        code,
        f"error: {name}_FILE: `{tmp_path}` cannot be read: Is a directory",
    )


def _options(command: str) -> set[str]:
    return (
        {"--data-dir"} if command.split(maxsplit=1)[0] in {"edge", "balancer", "control", "serve"} else set()
    )


def test_every_secret_setting_is_tried() -> None:
    """One that is declared as a secret belongs into `SETTINGS`; the token is each command's own."""
    declared = {
        one.variable
        for kind in (ControlSettings, EdgeSettings, BalancerSettings)
        for one in options(kind)
        if one.option.secret is not None
    }
    assert declared | {"GTM_TOKEN"} == SETTINGS.keys()
    files = {
        one.variable
        for kind in (ControlSettings, EdgeSettings)
        for one in options(kind)
        if one.variable.endswith("_FILE")
    }
    assert {f"{name}_FILE" for name in declared} < files


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", "\ufeff{}\r\n", "  {}\t"])
def test_what_surrounds_it_is_dropped(around: str, bare: Gtm, control: Control, tmp_path: Path) -> None:
    """By control's commands, and by those that go to the database; a file is read by each command anew, so a new token counts at once."""
    file = tmp_path / "token"
    admin = next(text for role, text in control.tokens.items() if role.value == "admin")
    file.write_text("gtm_old", encoding="utf-8")
    at = {"GTM_CONTROL_URL": control.url, "GTM_TOKEN_FILE": str(file)}
    assert bare("token", "list", **at).code == Exit.NOT_ALLOWED
    file.write_bytes(around.format(admin).encode())
    bare.ok("token", "list", **at)
    bare.ok("token", "list", GTM_CONTROL_URL=control.url, GTM_TOKEN=around.format(admin))
    file.write_bytes(around.format(control.database_url).encode())
    bare.ok("db", "current", GTM_DATABASE_URL_FILE=str(file))
    bare.ok("db", "current", GTM_DATABASE_URL=around.format(control.database_url))


def test_databases_that_do_not_answer(bare: Gtm, caplog: pytest.LogCaptureFixture) -> None:
    """The driver's words come without the password, whatever is wrong with the URL.

    langflow-ai/langflow pull request 15147: what masked passwords left URLs without `://`, the rest of a password with an `@`, and `?password=`.
    """
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url, code in {
        f"postgresql://gtm:{MARK}@127.0.0.1:{port}/gtm\n": Exit.UNREACHABLE,
        f"postgresql://gtm:{MARK}@no-host.invalid/gtm?connect_timeout=1": Exit.UNREACHABLE,
        f"postgresql://127.0.0.1:{port}/gtm?user=gtm&password={MARK}": Exit.UNREACHABLE,
        f"postgresql://gtm:half@{MARK}@127.0.0.1:{port}/gtm": Exit.BAD_INPUT,
        f"postgresql://gtm:{MARK}%00@127.0.0.1:{port}/gtm": Exit.BAD_INPUT,
        f"postgresql://gtm:{MARK}@127.0.0.1:port/gtm": Exit.BAD_INPUT,
        f"postgresql://gtm:{MARK}@127.0.0.1:{port}/gtm?no_such={MARK}": Exit.BAD_INPUT,
        f"host=127.0.0.1 user=gtm password={MARK}": Exit.BAD_INPUT,
        f"mysql://gtm:{MARK}@127.0.0.1/gtm": Exit.BAD_INPUT,
        f"'postgresql://gtm:{MARK}@127.0.0.1/gtm'": Exit.BAD_INPUT,
    }.items():
        done = bare("db", "current", GTM_DATABASE_URL=url)
        assert done.code == code, (url, done)
        assert MARK not in done.out + done.err + caplog.text


def test_what_control_answers_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Of a database that refuses, in the log with its traceback, and in a problem document."""
    url = f"postgresql://gtm:{MARK}@127.0.0.1:1/gtm"

    async def ping() -> None:
        database = Database(url)
        try:
            await database.ping()
        finally:
            await database.dispose()

    with pytest.raises(StorageUnavailable) as caught:
        asyncio.run(ping())
    assert MARK not in str(caught.value)
    assert MARK not in bytes(problem(503, f"cannot reach {url}").body).decode()
    assert MARK not in caplog.text


def test_files_that_are_read_at_a_start(tmp_path: Path) -> None:
    """The shared secret of DNS cookies: whatever is wrong with it, the error names the file and holds nothing of it."""
    file = tmp_path / "cookies"
    for content in (
        b"",
        b" \n",
        MARK.encode(),
        b"\xef\xbb\xbf" + MARK.encode(),
        MARK.encode("utf-16"),
        b"\xff" + MARK.encode(),
    ):
        file.write_bytes(content)
        with pytest.raises(OSError, match=f"--dns-cookie-secret-file: `{file}`") as caught:
            cookie_secrets(file)
        assert MARK not in str(caught.value)
    file.write_bytes(b"\xef\xbb\xbf" + b"0" * 32 + b"\r\n")
    assert cookie_secrets(file) == (bytes(16),)
    assert logging.getLogger("gtm") is not None

"""Secrets are read by one function, and redacted by one. The model is operations.md's "Secrets"."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtm import secret
from gtm.feed.client import BalancerFeedClient, ControlUnreachable, FeedClient
from gtm.runtime.process.logs import configure
from gtm.secret import KEY, PHRASE, TOKEN, URL, SecretError, SecretKind, clean, read_file, redact, remember
from gtm.storage.errors import StorageUnavailable, unavailable
from tests.core.strategies import quick

MARK = "THISISTHESECRET"
KINDS = {"token": TOKEN, "key": KEY, "secret": PHRASE, "URL": URL}
AROUND = ["", "\n", "\r\n", "\ufeff", " ", "\t", "\ufeff \r\n", "\u00a0"]
NEVER = {
    "NUL": "\0",
    "line end": "\n",
    "CR": "\r",
    "escape": "\x1b",
    "next line": "\x85",
    "separator": "\u2028",
}
ODD = {
    **{name: f"{MARK}{text}{MARK}" for name, text in NEVER.items()},
    "quotes": f'"{MARK}"',
    "apostrophes": f"'{MARK}'",
    "only spaces": " \r\n\t ",
    "only a mark": "\ufeff",
    "a megabyte": MARK * 70_000,
    "a surrogate": f"{MARK}\udcff",
}


@quick(200)
@given(
    st.sampled_from(AROUND),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8),
    st.sampled_from(AROUND),
)
def test_what_surrounds_a_secret_is_no_part_of_it(before: str, text: str, after: str) -> None:
    """White space, line ends of any system, and a byte order mark."""
    text = f"drawn-{text}"  # what is drawn is known from then on, and must not be in what other tests read
    assert clean(f"{before}{text}{after}", "GTM_X", KEY) == text


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_what_is_no_secret_is_told_without_it(kind: SecretKind, text: str, tmp_path: Path) -> None:
    """In one line that names the setting, also of a file."""
    said = []
    with pytest.raises(SecretError) as caught:
        clean(text, "GTM_X", kind)
    said.append(str(caught.value))
    file = tmp_path / "secret"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SecretError) as caught:
        read_file(file, "GTM_X_FILE", kind)
    said.append(str(caught.value))
    for line in said:
        assert line.startswith("GTM_X")
        assert MARK[:5] not in line
        assert "\n" not in line
        assert len(line) < 400


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (TOKEN, f"gtm_{MARK}ä", "a character beyond ASCII"),
        (TOKEN, f"gtm_a {MARK}", "a space in the middle"),
        (TOKEN, f"gtm_{MARK}\tb", "a tab"),
        (TOKEN, f'gtm_{MARK}"b', "a sign, which no token has"),
        (KEY, f"{MARK}\0", "a NUL byte"),
        (PHRASE, f"{MARK}\r\n{MARK}", "a line end in the middle"),
        (URL, f"postgresql://{MARK}\x1b", "a control character"),
    ],
)
def test_what_is_wrong_is_said_by_kind(kind: SecretKind, text: str, why: str) -> None:
    """The character itself may be most of a password."""
    with pytest.raises(SecretError, match=why):
        clean(text, "GTM_X", kind)


def test_a_url_may_hold_what_urls_hold() -> None:
    """Letters of other languages and spaces have worked, and go on."""
    for text in ("postgresql://u:pä ss@h/db", "postgresql://h/db?options=-c%20a=b c"):
        assert clean(f"{text}\n", "GTM_DATABASE_URL", URL) == text


def test_both_is_refused(tmp_path: Path) -> None:
    """In one line that names both; an empty one is none."""
    file = tmp_path / "token"
    file.write_text("gtm_x\r\n")
    assert secret.given("GTM_TOKEN", "", file, TOKEN) == "gtm_x"
    assert secret.given("GTM_TOKEN", "gtm_y", "", TOKEN) == "gtm_y"
    assert secret.given("GTM_TOKEN", "", None, TOKEN) is None
    with pytest.raises(SecretError, match=r"^GTM_TOKEN and GTM_TOKEN_FILE are both given: keep one of them$"):
        secret.given("GTM_TOKEN", "gtm_y", file, TOKEN)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, a folder, empty, UTF-16 as PowerShell writes it, no text at all."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "utf16").write_bytes(f"gtm_{MARK}".encode("utf-16"))
    (tmp_path / "binary").write_bytes(b"\xe4" + MARK.encode())
    for name, why in {
        "none": "cannot be read: No such file or directory; name a file that holds the token alone",
        "folder": "cannot be read: Is a directory",
        "empty": "holds nothing but white space",
        "utf16": "is UTF-16 text, as PowerShell writes it: save it as UTF-8",
        "binary": "is not UTF-8 text",
        "nul\0": "cannot be read: it is no path",
    }.items():
        with pytest.raises(SecretError) as caught:
            read_file(tmp_path / name, "GTM_TOKEN_FILE", TOKEN)
        assert str(caught.value).startswith(f"GTM_TOKEN_FILE: `{tmp_path / name}` {why}")
        assert MARK not in str(caught.value)


def test_a_token_file_with_a_mark(tmp_path: Path) -> None:
    """ClusterHQ/fli pull request 4: a token's file that a browser or an editor has begun with a byte order mark."""
    file = tmp_path / "token"
    file.write_bytes(b"\xef\xbb\xbfgtm_abc\r\n")
    assert read_file(file, "GTM_TOKEN_FILE", TOKEN) == "gtm_abc"


def test_a_file_may_be_a_pipe_and_read_by_all(tmp_path: Path) -> None:
    """As `GTM_TOKEN_FILE=<(pass gtm)`, and as Kubernetes and Docker mount secrets."""
    read, write = os.pipe()
    os.write(write, b"gtm_piped\n")
    os.close(write)
    assert read_file(Path(f"/dev/fd/{read}"), "GTM_TOKEN_FILE", TOKEN) == "gtm_piped"
    os.close(read)
    file = tmp_path / "token"
    file.write_text("gtm_open")
    file.chmod(0o644)
    assert read_file(file, "GTM_TOKEN_FILE", TOKEN) == "gtm_open"
    with pytest.raises(SecretError, match="larger than any token"):
        read_file(Path("/dev/zero"), "GTM_TOKEN_FILE", TOKEN)


# What is said


@quick(100)
@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60))
@example('a"quotation-mark')
@example("both\"of'them")
@example("a\\backslash")
@example('per%41cent"')
def test_libraries_say_a_secret_in_many_ways(text: str) -> None:
    """As it is, as Python shows it, in JSON, in a URL."""
    text = f"drawn-{text}"
    remember(text)
    quoted = secret.quote(text, safe="")
    for said in (text, repr(text), repr(text.encode()), secret.json.dumps(text), quoted):
        assert redact(said).strip("b\"'") == "[hidden]"


def test_passwords_of_urls() -> None:
    """Known or not, and where libraries put them; the rest of a message stays.

    buildbuddy-io/buildbuddy pull request 834: passwords with special characters in a connection string. malloydata/publisher pull request
    915: one with a raw `@`, of which the part behind it stayed.
    """
    assert (
        redact("no answer from postgresql://gtm:pw@db/gtm: refused")
        == "no answer from postgresql://gtm:[hidden]@db/gtm: refused"
    )
    assert redact("see https://gtm.example.com:8080/a?b=c@d") == "see https://gtm.example.com:8080/a?b=c@d"
    remember("postgresql://gtm:first%2Fhalf@second-half@db/gtm?password=third-half&sslpassword=fourth-half")
    for part in ("first%2Fhalf", "first/half", "second-half", "third-half", "fourth-half"):
        assert part not in redact(f"could not translate host name `second-half@db`, {part}")
    remember("postgresql://gtm:gtm@db/gtm")
    assert redact("gtm edge") == "gtm edge"


def test_one_may_be_a_part_of_another() -> None:
    """Nothing of the longer one is left."""
    remember("a-short-one-and-more")
    remember("a-short-one")
    assert redact("a-short-one-and-more, a-short-one") == "[hidden], [hidden]"


def test_what_a_database_driver_says() -> None:
    """Of a connection that failed, the first line, without the password."""
    remember("postgresql://gtm:the-password-of-gtm@db/gtm")
    with (
        pytest.raises(
            StorageUnavailable,
            match=r"^database: no such \[hidden\]; see to user and password in GTM_DATABASE_URL$",
        ),
        unavailable(),
    ):
        raise psycopg.OperationalError("no such the-password-of-gtm\nDETAIL: more")


def test_what_is_known_is_bounded() -> None:
    """Keys of checks change for as long as a balancer runs: the oldest go, the newest stay."""
    for number in range(secret._MOST_KNOWN + 10):  # noqa: SLF001 - the bound is the test's subject
        remember(f"secret-number-{number:04}")
    assert len(secret._sought) <= secret._MOST_KNOWN  # noqa: SLF001
    assert redact(f"secret-number-{secret._MOST_KNOWN + 9:04}") == "[hidden]"  # noqa: SLF001


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a server's log says."""
    root = logging.getLogger()
    handlers, level, hook = [*root.handlers], root.level, sys.excepthook
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    configure("debug", "edge")
    yield said
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook = hook


@pytest.mark.parametrize("client", [FeedClient, BalancerFeedClient])
def test_a_newline_at_a_tokens_end(client: type[FeedClient], log: io.StringIO) -> None:
    """However it came there, no error of the line to control holds it.

    slackapi/java-slack-sdk issue 566: "Leaks Authorization header when new line accidentally included in token secret".
    """

    async def follow(port: int) -> None:
        async with client(f"http://127.0.0.1:{port}", f"gtm_{MARK}\n", "e") as line:
            async for _ in line.messages(None):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(ControlUnreachable) as caught:
        asyncio.run(follow(listening.getsockname()[1]))
    assert "Illegal header value" in str(caught.value)
    assert MARK not in str(caught.value)
    logging.getLogger("gtm").error("it failed", exc_info=caught.value)
    assert "Illegal header value" in log.getvalue()
    assert MARK not in log.getvalue()


def test_tracebacks_of_what_nobody_foresaw() -> None:
    """Those that Python itself writes.

    backstage/backstage issue 21503: the token was redacted in the message, and stood in the stack below it.
    """
    program = (
        "from gtm.runtime.process.logs import configure; from gtm.secret import TOKEN, clean; configure('info', 'x')\n"
        f"token = clean('gtm_' + {MARK[:4]!r} + {MARK[4:]!r}, 'GTM_TOKEN', TOKEN)\n"
        "raise RuntimeError(f'cannot send Bearer {token}')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: cannot send Bearer [hidden]" in done.stderr
    assert MARK not in done.stderr

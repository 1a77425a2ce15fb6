"""Secrets: the one way in which gtm reads what it is given of them, and the one way in which it keeps them out of what it says.

Laws:
  1. A secret comes from a variable, an option or a file, and is read by `given`, `clean` or `read_file` alone: without the white
     space, line ends and byte order mark around it; checked for what no header and no URL may have.
  2. No message about a secret holds any of it.
  3. What is read here is known to `redact` from then on, and what others say (libraries, the system) goes through that before it
     is logged, answered or printed.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, unquote

MAX_SECRET = 4096
"""Characters of a secret."""
_SHORTEST = 8
"""Characters of the shortest text that is looked for alone: `gtm` as a password is everywhere in what gtm says."""
_MOST_KNOWN = 256
"""Texts that are looked for; keys of checks change while a balancer runs, and the oldest go."""
_BYTES = 4 * MAX_SECRET
_HIDDEN = "[hidden]"
_PASSWORD = re.compile(r"(://[^\s:/@?#]*:)[^\s/@]+@")
"""A password in a URL (RFC 3986 §3.2.1), known or not."""
_AROUND = "\ufeff"
_QUOTES = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"


class SecretError(ValueError):
    """A secret cannot be one, or cannot be read. The message says which and why, and holds nothing of it."""


@dataclass(frozen=True, slots=True)
class SecretKind:
    """One kind of secret.

    `called` is what it is called in messages, `pattern` all that one can be, and `must` says that in words. `exact`: of one
    that is none, no character is to blame.
    """

    called: str
    pattern: re.Pattern[str]
    must: str
    exact: bool = False


TOKEN = SecretKind(
    "token",
    re.compile(r"[A-Za-z0-9._~+/-]+=*"),
    "one word of letters, digits and - . _ ~ + / (RFC 6750 §2.1), as gtm_…",
)
"""A bearer token of gtm's."""
KEY = SecretKind("key", re.compile(r"[!-~]+"), "one word of printable ASCII")
"""A bearer token of others, some of whom are not strict."""
PHRASE = SecretKind("secret", re.compile(r"[ -~]+"), "one line of printable ASCII (RFC 6749 appendix A.2)")
"""A client's secret at an identity provider."""
URL = SecretKind(
    "URL", re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+"), "one line of printable characters"
)
"""A URL with a password in it."""


def given(name: str, text: str | None, file: str | Path | None, kind: SecretKind) -> str | None:
    """A secret that may stand in a variable, or in a file that another variable names; None: it stands in neither.

    Args:
        name: of the variable (`GTM_TOKEN`); the file's is called so with `_FILE` at its end.
        text: what the variable, or its option, holds. Empty: nothing.
        file: the file's path. Empty: there is none.
        kind: what it should be.

    Raises:
        SecretError: both are given, it cannot be read, or it is none.
    """
    path = str(file) if file is not None else ""
    if text and path:
        raise SecretError(f"{name} and {name}_FILE are both given: keep one of them")
    if path:
        return read_file(Path(path), f"{name}_FILE", kind)
    return clean(text, name, kind) if text else None


def read_file(path: Path, name: str, kind: SecretKind) -> str:
    """The secret in a file, which holds nothing else.

    It may be a pipe. Who may read it is not looked at: Kubernetes and Docker mount secrets so that all may.

    Args:
        path: where it is.
        name: what named the file (`GTM_TOKEN_FILE`), for messages.
        kind: what it should be.

    Raises:
        SecretError: it cannot be read, is empty, or holds something else.
    """
    where = f"{name}: `{path}`"
    try:
        with path.open("rb") as opened:
            content = opened.read(_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no path"
        raise SecretError(
            f"{where} cannot be read: {why}; name a file that holds the {kind.called} alone"
        ) from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SecretError(f"{where} is UTF-16 text, as PowerShell writes it: save it as UTF-8 or ASCII")
    try:
        text = content[:_BYTES].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SecretError(f"{where} is not UTF-8 text; {_should(kind)}") from None
    if len(content) > _BYTES:
        raise SecretError(
            f"{where} is larger than any {kind.called}: at most {MAX_SECRET} characters; {_should(kind)}"
        )
    return clean(text, where, kind)


def clean(text: str, where: str, kind: SecretKind) -> str:
    """A secret without what surrounds it: white space, line ends, a byte order mark. `redact` knows it from then on.

    Args:
        text: as it was given.
        where: it was found, for messages.
        kind: what it should be.

    Raises:
        SecretError: it is none.
    """
    found = _bare(text)
    if not found:
        raise SecretError(f"{where} holds nothing but white space; {_should(kind)}")
    if len(found) <= MAX_SECRET:
        remember(found)
    if found[0] in _QUOTES and len(found) > 1 and found[-1] in _QUOTES:
        raise SecretError(
            f"{where} stands in quotation marks, which count as part of it (env files of Docker and systemd's credentials keep "
            "them): leave them out"
        )
    if len(found) > MAX_SECRET:
        raise SecretError(
            f"{where} is longer than any {kind.called}: at most {MAX_SECRET} characters; {_should(kind)}"
        )
    if kind.pattern.fullmatch(found) is None:
        wrong = f"is no {kind.called}" if kind.exact else f"holds {_odd(found)}, which no {kind.called} has"
        raise SecretError(f"{where} {wrong}; {_should(kind)}")
    return found


def _bare(text: str) -> str:
    found = text
    while (less := found.strip().strip(_AROUND)) != found:
        found = less
    return found


def _should(kind: SecretKind) -> str:
    return f"it must be {kind.must}"


def _odd(text: str) -> str:
    """What in a text no secret has, by its kind alone: the character itself may be most of a password."""
    for found, called in (
        ("\0", "a NUL byte"),
        ("\r", "a line end in the middle"),
        ("\n", "a line end in the middle"),
        ("\t", "a tab"),
        (" ", "a space in the middle"),
    ):
        if found in text:
            return called
    if not text.isascii():
        return "a character beyond ASCII"
    return "a control character" if not text.isprintable() else "a sign"


# What is said


_known: dict[str, None] = {}
"""What is looked for, the newest last."""
_sought: tuple[str, ...] = ()
"""The same, the longest first: one may be a part of another."""
_remembering = threading.Lock()


def remember(text: str) -> None:
    """Keep a secret out of what `redact` passes on, also as others write it. Of a URL that is the password in it."""
    global _sought  # noqa: PLW0603 - read without a lock, so replaced whole
    forms = set(_passwords(text)) if "://" in text else {text, _bare(text)}
    for plain in forms | set(map(unquote, forms)):
        shown = repr(plain.encode(errors="surrogatepass"))[2:-1]
        forms |= {plain, quote(plain, safe="", errors="surrogatepass"), shown, json.dumps(plain)[1:-1]}
    with _remembering:
        for form in forms:
            if len(form) >= _SHORTEST:
                _known.pop(form, None)
                _known[form] = None
        while len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]
        _sought = tuple(sorted(_known, key=len, reverse=True))


def redact(text: str) -> str:
    """A text without the secrets that were read, nor the passwords of URLs."""
    for form in _sought:
        if form in text:
            text = text.replace(form, _HIDDEN)
    return _PASSWORD.sub(rf"\1{_HIDDEN}@", text) if "://" in text else text


def said(error: BaseException) -> str:
    """What an exception of a library says, as it may be passed on."""
    return redact(str(error)) or type(error).__name__


def guard_tracebacks() -> None:
    """From here on, tracebacks of what nobody foresaw are redacted, too."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))

    sys.excepthook = hook


def _passwords(url: str) -> Iterator[str]:
    """The passwords in a URL: before the host, and among the parameters; of one with an `@`, what libraries may take for part of a host, too."""
    if before := re.search(r"://[^:/@]*:(.*)@", url):
        yield from (before[1], *before[1].split("@"))
    yield from re.findall(r"[?&](?:ssl)?password=([^&]*)", url)

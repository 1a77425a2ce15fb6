"""Texts that readers do not read as they were written: several strings are joined without spaces (RFC 7208 §3.3, RFC 6376 §3.6.2.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import dns.exception
import dns.tokenizer

from gtm.core.model.names import absolute
from gtm.core.model.problems import Problem
from gtm.core.model.services import Zone

TEXTS = ("TXT", "SPF")
"""Types whose data are texts."""

_TERM = re.compile(
    r"[+?~-]?(?:all|a|mx|ptr)(?=[ /:]|$)|[+?~-]?(?:include|ip4|ip6|exists):|(?:redirect|exp)=", re.IGNORECASE
)
"""What a term of an SPF record begins with (RFC 7208 §4.6.1, §12)."""

_OPEN = (" ", ":", "=", "/", ".", "-", "+", "?", "~", "{", "%")
"""What no term of an SPF record ends with, so that a string after it goes on with the term."""


def text_findings(zone: Zone) -> Iterator[Problem]:
    """A finding `joined` for each text of a zone that is several strings where one was meant."""
    for index, record in enumerate(zone.records):
        if record.type not in TEXTS:
            continue
        path, name = f"zones.{zone.name}.records[{index}]", absolute(record.name, zone.name)
        for text in record.data:
            strings = read(text)
            if strings is not None and lost(strings):
                joined = "".join(string for string, _ in strings)
                yield Problem(path, "joined", _said(text, name, joined, [string for string, _ in strings]))


def read(text: str) -> list[tuple[str, bool]] | None:
    """The strings of a text record as they are written, each with whether it stands in quotes; None: it is not written as strings.

    Characters beyond ASCII, and escaped ones, stand for themselves (RFC 1035 §5.1).
    """
    if text.startswith("\\#"):
        return None
    tokens, found = dns.tokenizer.Tokenizer(text), []
    try:
        while not (token := tokens.get()).is_eol_or_eof():
            whole = token.unescape_to_bytes()
            found.append((whole.value.decode("utf-8", "replace"), token.is_quoted_string()))
    except (dns.exception.DNSException, ValueError):
        return None
    return found


def lost(strings: Sequence[tuple[str, bool]]) -> bool:
    """Whether joining some strings loses a space that was meant: between words without quotes, or before a term of an SPF record."""
    if len(strings) < 2:
        return False
    if not all(quoted for _, quoted in strings):
        return True
    if not strings[0][0].lower().startswith("v=spf1"):
        return False
    return any(
        _TERM.match(after) is not None and not before.endswith(_OPEN)
        for (before, _), (after, _) in pairwise(strings)
    )


def _said(text: str, name: str, joined: str, strings: Sequence[str]) -> str:
    source = "RFC 6376 §3.6.2.2" if "_domainkey" in name.split(".") else "RFC 7208 §3.3"
    whole = (
        '"' + " ".join(string.strip() for string in strings).replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
    return (
        f"`{text}` is {len(strings)} strings, which are read as one without spaces between them ({source}): `{joined}`. "
        f"Write it in one pair of double quotes: `{whole}`"
    )

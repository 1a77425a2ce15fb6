"""Texts and records that mail servers and certificate authorities read, where they would not find what was meant, or take it for an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from itertools import islice, pairwise
from typing import NamedTuple

import dns.exception
import dns.rdatatype
import dns.tokenizer

from gtm.core.model.names import WILDCARD, absolute, closest
from gtm.core.model.problems import Problem
from gtm.core.model.services import RecordSet, Zone
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.protocol import wire
from gtm.dns.zone.leads import NameEnd, ZoneLeads

# --- Texts that readers do not read as they were written: several strings are joined without spaces (RFC 7208 §3.3, RFC 6376 §3.6.2.2). ---


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


# --- Texts and records that mail servers and certificate authorities read, where they would not find what was meant, or take it for an error. ---


MAX_LOOKUPS = 10
"""Terms of an SPF record, and of those that it includes, that receivers look up (RFC 7208 §4.6.4)."""
_MOST_TOLD = 10
"""Findings of one code about one text: it may have thousands of terms."""
_MOST_SAID = 200
"""Characters of a text in a message."""


class _Kind(NamedTuple):
    """Texts of one purpose: what they are called, how they begin, the labels that they stand below (none: anywhere), who says so."""

    what: str
    begins: str
    pattern: re.Pattern[str]
    place: str
    source: str


def _kind(what: str, begins: str, place: str, source: str) -> _Kind:
    tag, version = begins.split("=")
    return _Kind(what, f"{begins};", re.compile(rf"{tag}[ \t]*=[ \t]*{version}[ \t]*(?:;|$)"), place, source)


_KINDS: Mapping[str, _Kind] = {
    "spf": _Kind(
        "an SPF record", "v=spf1 ", re.compile(r"v=spf1(?: |$)", re.IGNORECASE), "", "RFC 7208 §4.5"
    ),
    "dkim": _kind("a DKIM key", "v=DKIM1", "_domainkey", "RFC 6376 §3.6"),
    "dmarc": _kind("a DMARC policy", "v=DMARC1", "_dmarc", "RFC 7489 §6.6.3"),
    "sts": _kind("an MTA-STS record", "v=STSv1", "_mta-sts", "RFC 8461 §3.1"),
    "tlsrpt": _kind("a TLS reporting policy", "v=TLSRPTv1", "_smtp._tls", "RFC 8460 §3"),
}
_MEANT = re.compile(r"[\s\"'\\]*v\s*=\s*(spf|dkim|dmarc|sts|tlsrpt)v?1?(?![a-z0-9])", re.IGNORECASE)
"""A text that is one of them by its version, as people write it."""
_KEY = re.compile(r"(?:^|;)\s*p\s*=")
"""The tag that makes a text below `_domainkey` a key, with a version or without."""
_SPF_TERM = re.compile(r"[+?~-]?([a-z][a-z0-9._-]*)(?:([:/=])(.*))?", re.IGNORECASE)
"""A term of an SPF record: its name, what ends that, and its value (RFC 7208 §4.6.1)."""
_LOOKED_UP = frozenset({"include", "a", "mx", "ptr", "exists", "redirect"})
_VALUED = frozenset({"include", "exists", "ip4", "ip6"})
_POLICIES = ("none", "quarantine", "reject")
"""What a DMARC record may ask receivers to do (RFC 7489 §6.3)."""
_MECHANISMS = _VALUED | {"all", "a", "mx", "ptr"}
_TAGS = frozenset({"issue", "issuewild", "issuemail", "issuevmc", "iodef", "contactemail", "contactphone"})
_CAA = re.compile(r'\s*[0-9]+\s+"?([A-Za-z0-9]+)"?\s+(?:"((?:[^"\\]|\\.)*)"|(\S*))')
_ISSUER = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.IGNORECASE)
"""A CA's name in CAA records (RFC 8659 §4.2)."""


def mail_findings(snapshot: Snapshot, leads: ZoneLeads, zone: Zone) -> Iterator[Problem]:
    """What is wrong with a zone's records for mail and certificates.

    Args:
        snapshot: the policy.
        leads: what its names lead to.
        zone: one of its zones.

    Yields:
        `unread`: a text that receivers do not take for what it is. `misplaced`: one where nobody looks for it. `two_spf`,
        `two_texts`: two of a kind at a name, which receivers take for none. `tag`: a DKIM key or
        DMARC policy with tags that receivers cannot use. `spf_term`: a term
        of an SPF record that is none, or leads nowhere. `spf_lookups`: an SPF record with too many. `null_mx`: a domain that
        takes no mail, and does. `caa`: a CAA record that nobody goes by.
    """
    yield from _texts(snapshot, leads, zone)
    yield from _null_mx(zone)
    for index, record in enumerate(zone.records):
        for text in record.data if record.type == "CAA" else ():
            wrong = _caa(text)
            if wrong is not None:
                yield Problem(f"zones.{zone.name}.records[{index}]", "caa", f"`CAA {_short(text)}`: {wrong}")


def _texts(snapshot: Snapshot, leads: ZoneLeads, zone: Zone) -> Iterator[Problem]:
    known: dict[tuple[str, str], str] = {}
    elsewhere: list[tuple[str, str, str]] = []
    for index, record in enumerate(zone.records):
        if record.type not in TEXTS:
            continue
        path, name = f"zones.{zone.name}.records[{index}]", absolute(record.name, zone.name)
        for text in _joined(record):
            word = _word(text, name)
            if word is None:
                continue
            kind = _KINDS[word]
            if record.type == "SPF":
                if word == "spf" and not _spf(leads.records(name, wire.TXT) or ()):
                    message = f"receivers ask for TXT records alone (RFC 7208 §3.1): write `{_short(text)}` as one of type TXT"
                    yield Problem(path, "unread", message)
                continue
            if not kind.pattern.match(text) and not (word == "dkim" and _MEANT.match(text) is None):
                yield Problem(path, "unread", _unread(text, kind))
                continue
            first = known.get((name, word))
            if first is not None:
                message = (
                    f"`{name}` has two texts that are {kind.what}, `{_short(first)}` and `{_short(text)}`: receivers take that for an error or for none "
                    f"({kind.source}); make one of them"
                )
                yield (
                    Problem(path, "two_spf", message)
                    if word == "spf"
                    else Problem(path, "two_texts", message)
                )
            known.setdefault((name, word), text)
            if kind.place and first is None and f".{kind.place}." not in f".{name}.":
                elsewhere.append((path, name, word))
            for wrong in islice(_tags(text, word), _MOST_TOLD) if "_report._dmarc" not in name else ():
                yield Problem(path, "tag", f"`{_short(text)}`: {wrong} ({kind.source})")
            if word == "spf":
                yield from _Spf(snapshot, leads, name).findings(path, text)
    aliased = _aliased(snapshot) if elsewhere else frozenset()
    for path, name, word in elsewhere:
        kind = _KINDS[word]
        # Keys and policies of other domains, whose aliases lead here, stand below a label that says so.
        if name not in aliased and word not in name.split(".")[1:] and _missed(leads, name, kind):
            place = f"SELECTOR.{kind.place}.{name}" if word == "dkim" else f"{kind.place}.{name}"
            message = (
                f"`{name}` has {kind.what}, and nobody looks for one there: receivers ask for `{place}` ({kind.source}), "
                "where there is none. Give the record that name"
            )
            yield Problem(path, "misplaced", message)


def _joined(record: RecordSet) -> Iterator[str]:
    """The texts of a record as receivers read them: strings joined without spaces."""
    for text in record.data:
        strings = read(text)
        if strings is not None:
            yield "".join(string for string, _ in strings)


def _word(text: str, name: str) -> str | None:
    """Which kind a text is meant to be; None: another."""
    meant = _MEANT.match(text)
    if meant is not None:
        return meant[1].lower()
    return "dkim" if name.partition(".")[2].startswith("_domainkey.") and _KEY.search(text) else None


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"


def _tags(text: str, word: str) -> Iterator[str]:
    """What is wrong with the tags of a DKIM key or a DMARC policy."""
    if word not in ("dkim", "dmarc"):
        return
    tags: dict[str, str] = {}
    for part in text.rstrip("; \t").split(";"):
        tag, sign, value = (piece.strip() for piece in part.partition("="))
        if not (sign and tag):
            yield f"`{_short(part.strip())}` is no tag with a value, and receivers take the record for none: write `tag=value` with semicolons between"
        elif tag in tags:
            yield f"the tag `{_short(tag)}` stands there twice"
        tags.setdefault(tag, value)
    if "p" not in tags:
        yield "it has no tag `p`, without which receivers take it for none"
    for tag in ("p", "sp", "np") if word == "dmarc" else ():
        if tag in tags and tags[tag].lower() not in _POLICIES:
            yield f"`{tag}={_short(tags[tag])}` is no policy: those are {', '.join(_POLICIES)}"
    for tag in ("rua", "ruf") if word == "dmarc" else ():
        for where in (one.strip() for one in tags.get(tag, "").split(",")):
            if where and ":" not in where:
                yield f"`{_short(where)}` of `{tag}` is no URI, so no reports come: write `mailto:{_short(where)}`"


def _unread(text: str, kind: _Kind) -> str:
    why = ""
    if text.startswith(('"', "'")):
        why = "the quotation marks around it are part of the text: write one pair of double quotes, without a backslash before them"
    elif "\\" in text:
        why = "it has backslashes: a semicolon in double quotes needs none"
    return (
        f"receivers do not take `{_short(text)}` for {kind.what}, which begins with `{kind.begins}` ({kind.source})"
        + (f"; {why}" if why else "")
    )


def _missed(leads: ZoneLeads, name: str, kind: _Kind) -> bool:
    """Whether a text that stands at a name of its own choice is not where receivers look for it."""
    if WILDCARD in f"{name}.":
        return False
    there = leads.records(f"{kind.place}.{name}", wire.TXT)
    return there is not None and not any(kind.pattern.match(_text(one)) for one in there)


def _aliased(snapshot: Snapshot) -> frozenset[str]:
    """The names that aliases of the policy lead to."""
    return frozenset(
        absolute(text, zone.name)
        for zone in snapshot.policy.zones
        for record in zone.records
        if record.type == "CNAME"
        for text in record.data
    )


def _text(data: bytes) -> str:
    """The strings of a TXT record in wire form, joined."""
    found, at = [], 0
    while at < len(data):
        found.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return b"".join(found).decode("utf-8", "replace")


def _spf(records: tuple[bytes, ...]) -> str | None:
    """The SPF record among TXT records."""
    return next((text for text in map(_text, records) if _KINDS["spf"].pattern.match(text)), None)


class _Spf:
    """Reads the SPF records of a policy's names (RFC 7208)."""

    def __init__(self, snapshot: Snapshot, leads: ZoneLeads, name: str) -> None:
        self._zones = snapshot.zones
        self._leads = leads
        self._name = name

    def findings(self, path: str, text: str) -> Iterator[Problem]:
        """What is wrong with the record of a name."""
        ended, told = "", 0
        for term in text.split(" ")[1:]:
            wrong = self._wrong(term) if term else None
            found = _SPF_TERM.fullmatch(term)
            mechanism = found is not None and found[2] != "="
            if wrong is None and ended and mechanism:
                wrong = f"nothing behind `{_short(ended)}` counts (RFC 7208 §5.1): put it before"
            if wrong is not None and told < _MOST_TOLD:
                told += 1
                yield Problem(
                    path, "spf_term", f"`{_short(term)}` of the SPF record `{_short(text)}`: {wrong}"
                )
            if mechanism and found is not None and found[1].lower() == "all":
                ended = term
        if self._lookups(text) > MAX_LOOKUPS:
            message = (
                f"receivers look up more than {MAX_LOOKUPS} terms of `{_short(text)}`, with those of records that it includes here, and take that for "
                "an error (RFC 7208 §4.6.4): write addresses by ip4 and ip6"
            )
            yield Problem(path, "spf_lookups", message)

    def _wrong(self, term: str) -> str | None:
        found = _SPF_TERM.fullmatch(term)
        error = "receivers take the whole record for an error (RFC 7208 §4.6)"
        if found is None:
            return f"it is no term, and {error}"
        word, sign, value = found[1].lower(), found[2] or "", found[3] or ""
        if sign == "=":
            return self._led(word, value) if word == "redirect" else None
        if word not in _MECHANISMS:
            return f"there is no mechanism `{_short(word)}`, and {error}"
        if word in _VALUED and (sign != ":" or not value):
            return f"`{word}` needs a colon and a value, and {error}"
        if word in ("ip4", "ip6"):
            try:
                (IPv4Network if word == "ip4" else IPv6Network)(value, strict=False)
            except ValueError:
                return f"`{_short(value)}` is no {'IPv4' if word == 'ip4' else 'IPv6'} address or network, and {error}"
            return None
        return self._led(word, value.partition("/")[0] if sign == ":" else "")

    def _led(self, word: str, value: str) -> str | None:
        """What is wrong with the name that a term leads to, where it is one of the policy's."""
        name = value.removesuffix(".").lower()
        if "%" in name or word in ("all", "ptr", "exists"):
            return None
        if value and "." not in name:
            return f"names in SPF records are absolute, and `{_short(name)}.` is one right below the root: write `{_short(name)}.{self._name}` if that is meant"
        name = name or self._name
        if WILDCARD in f"{name}." or closest(self._zones, name) is None:
            return None
        if word == "a":
            end = self._leads.route(name).end
            return None if end not in (NameEnd.MISSING, NameEnd.EMPTY) else f"`{name}` has no address"
        there = self._leads.records(name, int(dns.rdatatype.MX) if word == "mx" else wire.TXT)
        if word == "mx":
            return f"`{name}` has no MX records" if there == () else None
        if there is None or _spf(there) is not None:
            return None
        return (
            f"`{name}` has no SPF record, and receivers take this one for an error then (RFC 7208 §5.2, §6.1)"
        )

    def _lookups(self, text: str) -> int:
        """How many terms are looked up, with those of the policy's records that are included, each once; no more than one too many."""
        count, ahead, seen = 0, [text], {self._name}
        while ahead:
            for term in ahead.pop().split(" ")[1:]:
                found = _SPF_TERM.fullmatch(term)
                word = "" if found is None else found[1].lower()
                if found is None or word not in _LOOKED_UP or (found[2] == "=") != (word == "redirect"):
                    continue
                count += 1
                if count > MAX_LOOKUPS:
                    return count
                name = (found[3] or "").removesuffix(".").lower()
                if word in ("include", "redirect") and name not in seen and closest(self._zones, name):
                    seen.add(name)
                    included = _spf(self._leads.records(name, wire.TXT) or ())
                    ahead += [] if included is None else [included]
        return count


def _null_mx(zone: Zone) -> Iterator[Problem]:
    found: dict[str, list[tuple[int, bool]]] = {}
    for index, record in enumerate(zone.records):
        if record.type == "MX":
            name = absolute(record.name, zone.name)
            found.setdefault(name, []).extend(
                (index, text.split()[-1] == ".") for text in record.data if text
            )
    for name, all_of_it in found.items():
        if len({null for _, null in all_of_it}) == 2:
            index = next(at for at, null in all_of_it if null)
            message = f"`{name}` takes no mail by its null MX, beside which no other MX record may stand (RFC 7505 §3): take one of them out"
            yield Problem(f"zones.{zone.name}.records[{index}]", "null_mx", message)


def _caa(text: str) -> str | None:
    """What is wrong with a CAA record (RFC 8659 §4)."""
    found = _CAA.match(text)
    if found is None:
        return None
    tag = found[1].lower()
    if tag not in _TAGS:
        return f"there is no tag `{_short(tag)}`, so no authority goes by it: those for issuing are issue, issuewild and issuemail"
    issuer = (found[2] if found[2] is not None else found[3] or "").partition(";")[0].strip()
    if tag.startswith("issue") and issuer and not _ISSUER.fullmatch(issuer):
        return f"`{_short(issuer)}` is no domain name, so the record forbids all authorities: write the authority's name alone, such as letsencrypt.org"
    return None

"""What is wrong with what an edge tells of its DNS, its probes and the certificates that it meets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gtm.core.model.certificates import Certificate
from gtm.core.model.problems import Problem
from gtm.feed.reports import EdgeReport

_MAX_TEXT = 1000
_MAX_NAMES = 100
_LISTED = 10
_MAX_LIMIT = 2**53
_LATEST = 253_402_300_799.0
"""The end of the year 9999, as certificates write that they do not end (RFC 5280 §4.1.2.5)."""
_SHA256 = re.compile("[0-9a-f]{64}", re.ASCII)


def told_problems(found: EdgeReport) -> list[Problem]:
    """What is wrong: the first of many."""
    return list(islice(_problems(found), _LISTED))


def _problems(found: EdgeReport) -> Iterator[Problem]:
    limits = found.dns_limits
    if limits is not None and not all(
        0 <= value <= _MAX_LIMIT
        for value in (limits.replies, limits.excess_bytes, limits.slip, limits.exempt)
    ):
        yield Problem("dns_limits", "out_of_range", f"must be between 0 and {_MAX_LIMIT}")
    for number, one in enumerate(found.probed or ()):
        if len(one.failure) > _MAX_TEXT:
            yield Problem(f"probed[{number}]", "too_long", f"a failure may have {_MAX_TEXT} characters")
    for number, shown in enumerate(found.certificates or ()):
        text = _certificate_problem(shown.certificate)
        if text is not None:
            yield Problem(f"certificates[{number}]", "invalid_format", text)


def _certificate_problem(one: Certificate) -> str | None:
    if not _SHA256.fullmatch(one.sha256):
        return "`sha256` must be 64 hexadecimal digits"
    if not all(-_LATEST <= at <= _LATEST for at in (one.not_before, one.not_after)):
        return "`not_before` and `not_after` must be POSIX times of the years up to 9999"
    if len(one.names) > _MAX_NAMES or any(
        len(text) > _MAX_TEXT for text in (one.subject, one.issuer, *one.names)
    ):
        return f"may have {_MAX_NAMES} names, and texts of {_MAX_TEXT} characters"
    return None

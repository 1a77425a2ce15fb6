"""Types of single fields in documents: every limit on what operators may write.

Ranges, lengths and patterns are JSON Schema constraints, so that the OpenAPI document shows them. What JSON Schema
cannot say (a regular expression compiles, an address is canonical) is checked by a function behind them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

import re2
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from gtm.core.model.countries import COUNTRIES
from gtm.documents.records import RecordError, record_type

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
JURISDICTION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9-]{0,61}[A-Za-z0-9]$"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOSTNAME_PATTERN = rf"^{_LABEL}(\.{_LABEL})*\.?$"
SERVICE_HOST_PATTERN = rf"^(\*\.)?{_LABEL}(\.{_LABEL})*\.?$"
_RECORD_LABEL = r"[A-Za-z0-9_/-]{1,63}"
RECORD_NAME_PATTERN = rf"^(@|\*|(\*\.)?{_RECORD_LABEL}(\.{_RECORD_LABEL})*\.?)$"
RECORD_TYPE_PATTERN = r"^[A-Za-z0-9-]+$"
ALPN_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9./-]*$"
ORIGIN_PATTERN = r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@]+)$"
METHOD_PATTERN = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
URL_PATTERN = r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s/?#@]+(/[^\s?#]*)?$"
PATH_PATTERN = r"^/[!-\"$-~]*$"
SUBDIVISION_PATTERN = r"^([A-Z]{2}-)?[A-Z0-9]{1,3}$"
MODEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"
JSON_FIELD_PATTERN = r"^[^.\s]+(\.[^.\s]+)*$"
MANAGER_PATTERN = r"^[a-z][a-z0-9-]{0,31}/[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$"
"""A tool and the name of what of it owns resources: `terraform/prod-network`, `gtm-apply/github.com/acme/policy`."""
LINE_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
TEXT_PATTERN = r"^([^\x00-\x08\x0b-\x1f\x7f-\x9f]|\r\n)*$"

PATTERN_WORDS = {
    NAME_PATTERN: "must be lower-case letters, digits and inner hyphens (at most 63 characters)",
    JURISDICTION_PATTERN: "must be 2 to 63 letters, digits and inner hyphens",
    HOSTNAME_PATTERN: "is not a host name: labels of letters, digits and inner hyphens, at most 63 characters each; "
    "write international names in their ASCII form (xn--…)",
    SERVICE_HOST_PATTERN: "is not a host name, or a wildcard such as `*.models.example.com`: labels of letters, digits "
    "and inner hyphens, at most 63 characters each; write international names in their ASCII form (xn--…)",
    RECORD_NAME_PATTERN: "must be `@`, or labels of letters, digits, hyphens, underscores and slashes (at most 63 "
    "characters each), the first of which may be `*`; with a dot at the end it is absolute, else relative to the zone",
    RECORD_TYPE_PATTERN: "must be a record type's mnemonic such as `MX`, or `TYPE` and its number",
    ALPN_PATTERN: "must be a protocol's name such as `h2`, `h3` or `http/1.1`",
    ORIGIN_PATTERN: "must be `*`, or an origin such as `https://app.example.com`: scheme, host and port, and no slash at its end",
    METHOD_PATTERN: "must be a name as HTTP has them (a token): letters, digits and !#$%&'*+.^_`|~-",
    URL_PATTERN: "must be an http or https URL with a host and an optional path, without user, query or fragment",
    PATH_PATTERN: "must begin with `/` and hold printable ASCII without spaces or `#`",
    SUBDIVISION_PATTERN: "is not an ISO 3166-2 code such as `US-CA` or `CA`",
    MODEL_PATTERN: "must begin with a letter or digit and hold only letters, digits and . _ : / @ + -",
    JSON_FIELD_PATTERN: "must be a dotted path such as `status.model_loaded`",
    MANAGER_PATTERN: "must be a tool and a name of its own with a slash between, such as `terraform/prod-network`: the tool in "
    "lower-case letters, digits and hyphens (at most 32), the name in letters, digits and . _ : / @ + - (at most 200)",
    LINE_PATTERN: "must not contain control characters",
    TEXT_PATTERN: "must not contain control characters other than line breaks and tabs (a carriage return stands before a line feed alone)",
}
"""What each pattern asks for, in words: errors are for people."""

_RE2_OPTIONS = re2.Options()
_RE2_OPTIONS.log_errors = False


def invalid(code: str, message: str) -> PydanticCustomError:
    """An error of a field or document, to be raised while it is read."""
    # Braces would be taken for placeholders of pydantic's message template.
    return PydanticCustomError(code, "{text}", {"text": message})


def _country(value: str) -> str:
    if value in COUNTRIES:
        return value
    hint = ""
    if value.upper() in COUNTRIES:
        hint = f"; did you mean `{value.upper()}`?"
    elif value.upper() == "UK":
        hint = "; the United Kingdom's code is `GB`"
    elif value.upper() in {"EU", "EEA"}:
        hint = "; list it under the jurisdictions instead"
    raise invalid(
        "unknown_reference", f"`{value}` is not a country code (ISO 3166-1 alpha-2, upper case){hint}"
    )


def _hostname(value: str) -> str:
    host = value.removesuffix(".").lower()
    if len(host) > 253:  # RFC 1035 §2.3.4
        raise invalid("out_of_range", "a host name has at most 253 characters")
    return host


def _record_type(value: str) -> str:
    try:
        return record_type(value)
    except RecordError as error:
        raise invalid("invalid_format", str(error)) from error


def _split(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError as error:
        raise invalid("invalid_format", f"`{value}` is not a URL: {str(error).lower()}") from error
    return parts


_ENDS_IN_A_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
"""A host that clients take for an IPv4 address, however its numbers are written (https://url.spec.whatwg.org/#ends-in-a-number-checker)."""


def _url(value: str) -> str:
    parts = _split(value)
    host = parts.hostname or ""
    if not host or parts.port == 0:
        raise invalid("invalid_format", f"`{value}` is not a URL with a valid host and port")
    if ":" in host:
        host = f"[{_address(IPv6Address, 'IPv6')(host)}]"
    elif _ENDS_IN_A_NUMBER.search(host):
        host = _address(IPv4Address, "IPv4")(host)
    elif not re.fullmatch(HOSTNAME_PATTERN, host):
        raise invalid("invalid_format", f"the host of `{value}` {PATTERN_WORDS[HOSTNAME_PATTERN]}")
    if not parts.path.isascii():
        raise invalid("invalid_format", f"the path of `{value}` must be percent-encoded ASCII")
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme.lower()}://{host}{port}{parts.path.rstrip('/')}"


def _origin(value: str) -> str:
    """As browsers write it (RFC 6454 §6.2): in lower case, and without the port that its scheme has anyhow."""
    if value == "*":
        return value
    parts = _split(value.lower())
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme)
    return f"{parts.scheme}://{parts.netloc.removesuffix(usual) if usual else parts.netloc}"


def _address(kind: type[IPv4Address | IPv6Address], family: str) -> Callable[[str], str]:
    def canonical(value: str) -> str:
        try:
            address = kind(value)
        except ValueError as error:
            raise invalid("invalid_format", f"`{value}` is not an {family} address") from error
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise invalid("invalid_format", f"`{value}` has a zone index, which means nothing to clients")
        return str(address)

    return canonical


def _regex(value: str) -> str:
    try:
        re2.compile(value, _RE2_OPTIONS)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise invalid(
            "invalid_format",
            f"`{value}` is not an RE2 pattern: {reason} (RE2 runs in linear time, hence has no backreferences and no "
            "look-around)",
        ) from error
    return value


def _moment(value: Any) -> Any:
    """Numbers are not moments: pydantic would take them for seconds since 1970."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d", value):
        raise invalid("wrong_type", "must be a date and time such as `2026-01-31T00:00:00Z`")
    return value


def _zoned(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise invalid("invalid_format", "needs a time zone: write `Z` or an offset such as `+01:00`")
    return value


def _in_folder(value: Path, info: ValidationInfo) -> Path:
    return info.context["folder"] / value if info.context else value


Name = TypeAliasType("Name", Annotated[StrictStr, Field(pattern=NAME_PATTERN, max_length=63)])
JurisdictionName = TypeAliasType(
    "JurisdictionName",
    Annotated[StrictStr, Field(pattern=JURISDICTION_PATTERN, min_length=2, max_length=63)],
)
CountryCode = TypeAliasType(
    "CountryCode",
    Annotated[StrictStr, AfterValidator(_country), Field(json_schema_extra={"enum": sorted(COUNTRIES)})],
)
Subdivision = Annotated[StrictStr, Field(pattern=SUBDIVISION_PATTERN)]
HostName = TypeAliasType(
    "HostName",
    Annotated[
        StrictStr, Field(pattern=HOSTNAME_PATTERN, min_length=1, max_length=254), AfterValidator(_hostname)
    ],
)
ServiceHost = TypeAliasType(
    "ServiceHost",
    Annotated[
        StrictStr,
        Field(pattern=SERVICE_HOST_PATTERN, min_length=1, max_length=254),
        AfterValidator(_hostname),
    ],
)
RecordName = Annotated[
    StrictStr, Field(pattern=RECORD_NAME_PATTERN, max_length=254), AfterValidator(str.lower)
]
RecordType = Annotated[
    StrictStr, Field(pattern=RECORD_TYPE_PATTERN, max_length=20), AfterValidator(_record_type)
]
RecordData = Annotated[StrictStr, Field(pattern=LINE_PATTERN, max_length=65_535)]
Alpn = Annotated[StrictStr, Field(pattern=ALPN_PATTERN, max_length=32)]
Origin = Annotated[StrictStr, Field(pattern=ORIGIN_PATTERN, max_length=300), AfterValidator(_origin)]
FieldName = Annotated[StrictStr, Field(pattern=METHOD_PATTERN, max_length=100)]
Url = Annotated[StrictStr, Field(pattern=URL_PATTERN, max_length=2048), AfterValidator(_url)]
IPv4 = Annotated[
    StrictStr, AfterValidator(_address(IPv4Address, "IPv4")), Field(json_schema_extra={"format": "ipv4"})
]
IPv6 = Annotated[
    StrictStr, AfterValidator(_address(IPv6Address, "IPv6")), Field(json_schema_extra={"format": "ipv6"})
]
ProbePath = Annotated[StrictStr, Field(pattern=PATH_PATTERN, max_length=2048)]
ModelName = Annotated[StrictStr, Field(pattern=MODEL_PATTERN, max_length=200)]
Regex = Annotated[StrictStr, Field(min_length=1, max_length=1000), AfterValidator(_regex)]
JsonField = Annotated[StrictStr, Field(pattern=JSON_FIELD_PATTERN, max_length=200)]
JsonInt = Annotated[StrictInt, Field(ge=-(2**53), le=2**53)]
Manager = Annotated[StrictStr, Field(pattern=MANAGER_PATTERN, max_length=233)]
Line = Annotated[StrictStr, Field(pattern=LINE_PATTERN, max_length=200)]
Text = Annotated[
    StrictStr,
    Field(pattern=TEXT_PATTERN, max_length=4000),
    AfterValidator(lambda text: text.replace("\r\n", "\n")),
]
"""A text of several lines; its line breaks are kept as line feeds, whatever system they were written on."""
Port = Annotated[StrictInt, Field(ge=1, le=65535)]
Status = Annotated[StrictInt, Field(ge=100, le=599)]
Ttl = Annotated[StrictInt, Field(ge=1, le=86400)]
Seconds31 = Annotated[StrictInt, Field(ge=1, le=2**31 - 1)]
Threshold = Annotated[StrictInt, Field(ge=1, le=100)]
Count = Annotated[StrictInt, Field(ge=0, le=10**9)]
Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Flag = StrictBool
Moment = Annotated[
    datetime,
    BeforeValidator(_moment, json_schema_input_type=datetime),
    AfterValidator(_zoned),
]
File = Annotated[Path, AfterValidator(_in_folder)]
"""A file; its name is relative to the folder of the file that names it (`folder` of the validation's context)."""

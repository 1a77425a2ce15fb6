"""Templates, and how numbers, times and states are written in them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from gtm.client.objects import JsonObject
from gtm.dashboard import static_files

MENU: set[str] = set()
"""Paths of the pages that there are; filled by `gtm.dashboard.app`."""
_ORDER = re.compile("([\u202a-\u202e\u2066-\u2069])")
"""Embeddings, overrides and isolates. Marks, which languages need, change nothing of what others wrote."""
_HOME = Path(__file__).parent / "templates"


_METHODS = frozenset(dir(dict))


class _Templates(Environment):
    """Looks names up in dictionaries, which nearly all that is shown is made of, without trying for an attribute first: that takes six times as long."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Find an attribute as Jinja does."""
        if type(obj) in (dict, JsonObject) and attribute not in _METHODS:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


@cache
def prepare() -> None:
    """Compile all templates in a thread, half a second together, as soon as somebody looks: nobody may, and each start would cost it."""
    threading.Thread(target=_compile, args=(environment(),), name="templates", daemon=True).start()


def _compile(templates: Environment) -> None:
    for name in templates.list_templates():
        templates.get_template(name)


@cache
def environment() -> Environment:
    """All templates. What is not there is an error, and all text is escaped."""
    made = _Templates(
        loader=FileSystemLoader(_HOME),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"static": static_files.url, "states": STATES, "pages": MENU}
    made.filters |= {
        "rate": rate,
        "share": share,
        "ms": ms,
        "count": count,
        "ago": ago,
        "iso": iso,
        "moment": moment,
        "lasting": lasting,
        "words": words,
        "json": as_json,
        "coded": coded,
        "seen": seen,
        "tool": tool,
        "owner": owner,
    }
    return made


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """A template with these values."""
    prepare()
    return environment().get_template(template).render(values)


def words(value: Any) -> str:
    """A state's or a code's name as people read it: `near_real_time` is `near real time`."""
    return str(value).replace("_", " ")


_TOOLS = {"terraform": "Terraform", "gtm-apply": "gtm apply"}


def tool(manager: str) -> str:
    """What manages a resource, as people call it: `terraform/prod` is Terraform."""
    name = manager.partition("/")[0]
    return _TOOLS.get(name, name)


def owner(manager: str) -> str:
    """Which of that tool's owners: `terraform/prod` is prod."""
    return manager.partition("/")[2]


def as_json(value: Any) -> str:
    """A value as JSON, for people to read.

    >>> as_json({"a": [1, "ß"]})
    '{"a": [1, "ß"]}'
    """
    return json.dumps(value, ensure_ascii=False)


def coded(text: Any) -> Markup:
    """A message of the API with what stands between backticks as code.

    >>> str(coded("no `<x>`"))
    'no <code>&lt;x&gt;</code>'
    """
    parts = str(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def seen(text: str) -> Markup:
    """A text of somebody's with what would have it read in another order than it is written (UAX #9 §2) made visible.

    Who approves of a difference would else see what it is not: CVE-2021-42574 in source text.

    >>> str(seen("a\u202eb<"))
    'a<mark class="order" title="changes the order in which text is shown">U+202E</mark>b&lt;'
    """
    mark = Markup('<mark class="order" title="changes the order in which text is shown">U+{:04X}</mark>')
    parts = _ORDER.split(text)
    return Markup("").join(
        mark.format(ord(part)) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def count(value: float | None) -> str:
    """A number: three digits, thousands apart; a dash where nothing is known.

    >>> [count(value) for value in (None, 0, 0.0034, 0.034, 3.14159, 42.0, 31_415.9)]
    ['–', '0', '<0.01', '0.03', '3.14', '42', '31,416']
    """
    if value is None:
        return "–"
    size = abs(value)
    if 0 < value < 0.005:
        return "<0.01"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def rate(value: float | None) -> str:
    """Requests per second."""
    return "–" if value is None else f"{count(value)}/s"


def share(value: float | None) -> str:
    """A part of one, in percent.

    >>> [share(value) for value in (None, 0.0, 0.004, 0.5, 1.0)]
    ['–', '0%', '0.4%', '50%', '100%']
    """
    if value is None:
        return "–"
    part = 100 * value
    return f"{part:.1f}%" if 0 < part < 10 and round(part, 1) != round(part) else f"{part:.0f}%"


def ms(value: float | None) -> str:
    """Milliseconds."""
    return "–" if value is None else f"{count(value)} ms"


def lasting(seconds: float | None) -> str:
    """How long something takes, or took.

    >>> [lasting(value) for value in (None, 0.26, 3.0, 61, 7300, 200_000)]
    ['–', '0.3 s', '3 s', '1 min', '2 h', '2 days']
    """
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size or (seconds >= size and unit != "days"):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 or not seconds else f"{seconds:.1f} s"


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return found.astimezone(UTC)


def moment(value: Any) -> Markup:
    """A time, POSIX seconds or ISO 8601, in UTC; the page adds the reader's own."""
    found = _time(value)
    if found is None:
        return Markup("–")
    stamp = found.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" data-local>{} UTC</time>').format(found.isoformat(), stamp)


def iso(value: Any) -> str:
    """A time for programs: ISO 8601, in UTC.

    >>> iso(0)
    '1970-01-01T00:00:00+00:00'
    """
    found = _time(value)
    return "" if found is None else found.isoformat()


def ago(value: Any) -> Markup:
    """How long ago a time was: the page goes on counting."""
    found = _time(value)
    if found is None:
        return Markup("never")
    past = max(0.0, (datetime.now(UTC) - found).total_seconds())
    return Markup('<time datetime="{}" data-ago title="{}">{} ago</time>').format(
        found.isoformat(), found.strftime("%Y-%m-%d %H:%M:%S UTC"), lasting(past)
    )


STATES = {
    "up": ("good", "●", "up"),
    "down": ("bad", "✕", "down"),
    "unknown": ("dim", "?", "unknown"),
    "held": ("bad", "✕", "held"),
    "ejected": ("bad", "✕", "ejected"),
    "trial": ("warn", "◐", "on trial"),
    "warming": ("warn", "◐", "warming up"),
    "active": ("good", "●", "active"),
    "draining": ("warn", "◐", "draining"),
    "disabled": ("dim", "■", "disabled"),
    "fresh": ("good", "●", "fresh"),
    "stale": ("warn", "◐", "late"),
    "lost": ("bad", "✕", "lost"),
    "never": ("dim", "–", "none"),
}
"""State → its class of colours, its sign and its word: never the colour alone."""

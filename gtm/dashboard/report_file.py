"""A simulation as one HTML file that stands alone: made of the templates, styles and map of the Simulate page, loading nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from gtm.dashboard import static_files
from gtm.dashboard.effects import latency_curves, told
from gtm.dashboard.rendering import rendered

if TYPE_CHECKING:
    from gtm.client import types

MOST_COUNTRIES = 200
_STYLES = ("effect.css", "simulate.css", "gtm.css")
_SCRIPTS = (
    "vendor/d3-array.min.js",
    "vendor/d3-geo.min.js",
    "vendor/topojson-client.min.js",
    "map.js",
    "effect.js",
)


def report(
    made: types.SimulationView, *, before: str, after: str, scenario: Mapping[str, Any] | None = None
) -> str:
    """The file.

    Args:
        made: a simulation (`gtm.core.simulate.report`).
        before: what the policy in force is called.
        after: what the draft is called.
        scenario: what happens besides, as the API takes it.
    """
    style = "\n".join(map(_text, _STYLES))
    scripts = [_text(name) for name in _SCRIPTS]
    hashes = " ".join(map(_hashed, scripts))
    values = {
        "title": f"Simulation: {after} against {before}",
        "scenario": said(scenario or {}),
        "policy": f"default-src 'none'; style-src {_hashed(style)}; script-src {hashes}",
        "style": Markup(style),  # noqa: S704 - files of our own
        "scripts": [Markup(text) for text in scripts],  # noqa: S704 - likewise
        "land": "",
        "shapes": Markup(_text("vendor/countries-110m.json")),  # noqa: S704 - likewise
        "effect": told(made, MOST_COUNTRIES),
        "curves": latency_curves(*(made.average[side].latency_ms for side in ("before", "after"))),
    }
    return rendered("simulate_file.html", values)


def said(scenario: Mapping[str, Any]) -> list[str]:
    """A scenario in words, a line for each thing that happens.

    >>> said({"down": ["a", "b"], "capacity": {"c": 0.5}, "demand": 2.0})
    ['a and b fail', 'c has 50 % of its capacity', '2 times the requests']
    """
    found = []
    for key, one, several in (("down", "fails", "fail"), ("drain", "drains", "drain")):
        names = scenario.get(key) or []
        if names:
            found.append(f"{' and '.join(names)} {one if len(names) == 1 else several}")
    found += [
        f"{name} has {100 * factor:g} % of its capacity"
        for name, factor in (scenario.get("capacity") or {}).items()
    ]
    if (demand := scenario.get("demand")) is not None:
        found.append(f"{demand:g} times the requests")
    found += [
        f"{factor:g} times the requests for {name}"
        for name, factor in (scenario.get("services") or {}).items()
    ]
    return [*found, f"by the law of {scenario['at']}"] if scenario.get("at") else found


def _text(name: str) -> str:
    return (static_files.HOME / name).read_text(encoding="utf-8").strip()


def _hashed(text: str) -> str:
    """As a policy of contents names an inline script or style (CSP Level 3, 2.3.1)."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

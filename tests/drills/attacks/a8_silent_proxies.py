"""A8: a trusted proxy that does not say for whom it asks."""

from __future__ import annotations

import httpx

from tests.drills.arena import Arena, attack, held

HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"X-Forwarded-For": ""},
    {"X-Forwarded-For": "garbage"},
    {"X-Forwarded-For": "unknown"},
    {"X-Forwarded-For": "127.0.0.3, 127.0.0.2"},
    {"X-Forwarded-For": "8.8.8.8, _hidden"},
    {"Forwarded": "for=unknown"},
    {"Forwarded": 'for="_hidden:1234"'},
    {"Forwarded": "for=8.8.8.8;for=8.8.4.4"},
    {"Forwarded": "for=8.8.8.8", "X-Forwarded-For": "8.8.4.4"},
)


@attack("A8", "a trusted proxy without a header, or with one that names nobody")
def silent(arena: Arena) -> str:
    """The proxy stands in the US by an override; whoever is behind it may be in the EEA."""
    overrides = arena.fresh().with_suffix(".yaml")
    overrides.write_text("overrides:\n  - {network: 127.0.0.0/8, country: US, lat: 39.0, lon: -77.5}\n")
    arguments = ("--geoip-overrides", str(overrides), "--trusted-proxies", "127.0.0.0/8")
    with arena.own("--demo", *arguments) as demo:
        url = f"{demo.edge}/v1/route?service=chat"
        for headers in HEADERS:
            found = httpx.get(url, headers=headers, timeout=10).json()
            held(found["client"]["ip"] is None, f"{headers}: the client is {found['client']['ip']}")
            held(found["region"] in {"eu-central", "eu-west"}, f"{headers}: sent to {found['region']}")
        named = httpx.get(url, headers={"X-Forwarded-For": "8.8.8.8"}, timeout=10).json()["region"]
        held(named == "us-west", f"a client who is named was sent to {named}")
    return f"{len(HEADERS)} ways to name nobody are all an unknown client"

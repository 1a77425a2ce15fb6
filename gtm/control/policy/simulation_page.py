"""A simulation as one HTML page that stands alone: no script, nothing from elsewhere, a table beside every chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from gtm.control.policy.charts import bars, colours, latency_curves, world_map

_SHOWN = 200
"""Rows of a table."""

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#59636e;--paper:#fff;--card:#f6f8fa;--line:#d1d9e0;--land:#dfe4ea;
--refused:#c4002b;--accent:#0969da}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--paper:#0d1117;--card:#151b23;--line:#30363d;
--land:#262d36;--refused:#ff6b81;--accent:#58a6ff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:24px;font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:1.5rem;margin:0 0 4px}h2{font-size:1.15rem;margin:36px 0 8px}p{margin:4px 0 12px;color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(185px,1fr));gap:12px;margin:18px 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.card b{display:block;font-size:1.05rem;white-space:nowrap;font-variant-numeric:tabular-nums}.card span{color:var(--soft);font-size:.86rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:16px;align-items:start}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px}
figcaption{font-size:.86rem;color:var(--soft);padding:4px 2px}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--ink);font:11px system-ui,sans-serif}svg .tick{fill:var(--soft)}svg .name{font-size:12px}
svg .label{font-size:11px;paint-order:stroke;stroke:var(--card);stroke-width:3px}
.land{fill:var(--land)}.grid{fill:none;stroke:var(--line);stroke-width:.6}
.dot{fill-opacity:.75;stroke:var(--card);stroke-width:.6}.changed{fill-opacity:.9;stroke:var(--ink);stroke-width:1.2}
.move{fill:none;stroke-width:1;stroke-opacity:.55}.region{stroke:var(--ink);stroke-width:1.2}
rect.before{fill-opacity:.4}.curve{fill:none;stroke:var(--accent);stroke-width:2}
.curve.before{stroke:var(--soft);stroke-dasharray:5 4}
.maps{display:grid;gap:16px}.scroll{overflow-x:auto}.tall{max-height:540px;overflow:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:2px 0 6px}
th,td{padding:4px 10px 4px 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}
.swatch{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:6px}
.warn{border-left:4px solid var(--refused);padding:6px 12px;background:var(--card);color:var(--ink)}
a{color:var(--accent)}footer{margin-top:40px;color:var(--soft);font-size:.82rem}
"""


def page(data: Mapping[str, Any], *, before: str, after: str) -> str:
    """The page.

    Args:
        data: a simulation (`gtm.core.simulate.report`).
        before: what the policy in force is called.
        after: what the draft is called.
    """
    colour = colours(region["region"] for region in data["regions"])
    sections = (
        _cards(data),
        "".join(f'<p class="warn">{escape(str(text))}</p>' for text in data["warnings"]),
        _map(data, colour, before, after),
        _shares(data, colour),
        _latency(data),
        _room(data, colour),
        _countries(data, colour),
        _spill(data),
        _refusals(data),
    )
    title = escape(f"Simulation: {after} against {before}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main><h1>{title}</h1>"
        f"<p>{escape(_traffic(data['traffic']))}</p>{''.join(sections)}</main>"
        '<footer>Places on the maps: <a href="https://db-ip.com">IP Geolocation by DB-IP</a>, CC BY 4.0.</footer>'
        "</body></html>\n"
    )


def _traffic(traffic: Mapping[str, Any]) -> str:
    peak = traffic["peak"]
    said = f"{traffic['requests']:,.0f} requests in {_duration(traffic['seconds'])}, {_figures(traffic['rate'])} requests/s"
    if peak["rate"] != traffic["rate"]:
        when = (
            ""
            if peak["start"] is None
            else f" ({datetime.fromtimestamp(peak['start'], UTC):%Y-%m-%d %H:%M} UTC)"
        )
        said += f"; at the peak{when} {_figures(peak['rate'])} requests/s"
    return said + ". Before: the policy in force. After: the draft."


def _duration(seconds: float) -> str:
    for size, unit in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"


def _cards(data: Mapping[str, Any]) -> str:
    average, peak = data["average"], data["peak"]
    old, new = average["before"], average["after"]
    cards = [
        (f"{data['moved']:.1%}", "of requests go elsewhere"),
        (
            f"{sum(one['before'] != one['after'] for one in data['countries'])}",
            "countries (by service) get another region",
        ),
        (_change(old["refused"]["share"], new["refused"]["share"], "%"), "refused, on average"),
        (
            _change(peak["before"]["refused"]["share"], peak["after"]["refused"]["share"], "%"),
            "refused, at the peak",
        ),
    ]
    if old["latency_ms"] and new["latency_ms"]:
        for key, name in (("mean", "mean latency"), ("p99", "99th percentile")):
            cards.append((_change(old["latency_ms"][key], new["latency_ms"][key], "ms"), name))
    inner = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in cards
    )
    return f'<div class="cards">{inner}</div>'


def _change(before: float, after: float, unit: str) -> str:
    old, new = (f"{100 * one:.2f} %" if unit == "%" else f"{one:.0f} ms" for one in (before, after))
    return old if old == new else f"{old} → {new}"


def _map(data: Mapping[str, Any], colour: Mapping[str, str], before: str, after: str) -> str:
    unknown = sum(place["share"] for place in data["places"] if place["lat"] is None)
    figures = "".join(
        f"<figure>{world_map(data, side, colour, f'Where requests come from and go, {side}: {name}')}"
        f"<figcaption>{side.capitalize()}: {escape(name)}</figcaption></figure>"
        for side, name in (("before", before), ("after", after))
    )
    note = (
        "Circles are clients, by size, in the colour of the region (diamond) that most of them go to; those with a "
        "rim change, and a line leads to their new region. The table of countries below tells the same."
    )
    if unknown > 0:
        note += f" {unknown:.1%} of requests come from unknown places."
    return f'<h2>Map</h2><p>{escape(note)}</p><div class="maps">{figures}</div>'


def _shares(data: Mapping[str, Any], colour: Mapping[str, str]) -> str:
    sides = _sides(data, lambda projection: {one["region"]: one for one in projection["regions"]})
    names = [region["region"] for region in data["regions"]]
    shares = [[side.get(name, {}).get("share") for side in sides] for name in names]
    chart = bars(
        [(name, row[0], row[1]) for name, row in zip(names, shares, strict=True)],
        colour,
        "Share of requests by region, before and after",
    )
    rows = [(_named(name, colour), *map(_percent, row)) for name, row in zip(names, shares, strict=True)]
    table = _table("Share of requests", ("region", *_FOUR), rows)
    return _section("Regions", "Pale: before. Full: after. On average.", chart, table)


_FOUR = ("average before", "average after", "peak before", "peak after")


def _sides(data: Mapping[str, Any], read: Any) -> list[Any]:
    """Something of each of the four projections."""
    return [read(data[when][side]) for when in ("average", "peak") for side in ("before", "after")]


def _latency(data: Mapping[str, Any]) -> str:
    found = _sides(data, lambda projection: projection["latency_ms"])
    if not any(found):
        return "<h2>Latency</h2><p>No client's place is known, so nothing can be said of latency.</p>"
    chart = latency_curves(found[0], found[1], "Share of requests within a latency, before and after")
    rows = [
        (name, *("–" if one is None else f"{one[key]:.0f} ms" for one in found))
        for key, name in (("mean", "mean"), ("p50", "median"), ("p90", "90 %"), ("p99", "99 %"))
    ]
    table = _table("Latency that so many requests stay within", ("", *_FOUR), rows)
    return _section(
        "Latency", "Dashed: before. Solid: after. On average; network and region together.", chart, table
    )


def _room(data: Mapping[str, Any], colour: Mapping[str, str]) -> str:
    sides = _sides(data, lambda projection: {one["region"]: one["room"] for one in projection["regions"]})
    names = [region["region"] for region in data["regions"]]
    used = [[_of(side.get(name), "utilization") for side in sides] for name in names]
    if not any(value is not None for row in used for value in row):
        text = "No region has a capacity that is known together with the time a request takes."
        return f"<h2>Capacity</h2><p>{text}</p>"
    chart = bars(
        [(name, row[2], row[3]) for name, row in zip(names, used, strict=True)],
        colour,
        "Capacity in use by region at the peak, before and after",
    )
    rows = [
        (_named(name, colour), *map(_percent, row), _spare(sides[3].get(name)))
        for name, row in zip(names, used, strict=True)
    ]
    table = _table("Usable capacity in use", ("region", *_FOUR, "left at the peak, after"), rows)
    return _section("Capacity", "Pale: before. Full: after. At the peak.", chart, table)


def _of(item: Mapping[str, Any] | None, key: str) -> Any:
    return None if item is None else item[key]


def _spare(room: Mapping[str, Any] | None) -> str:
    if room is None:
        return "–"
    parts = [
        f"{_figures(room[f'usable_{key}'] - room[f'used_{key}'])} {unit}"
        for key, unit in (("slots", "slots"), ("rate", "requests/s"))
        if room[f"usable_{key}"] is not None and room[f"used_{key}"] is not None
    ]
    return ", ".join(parts) or "no bound known"


def _countries(data: Mapping[str, Any], colour: Mapping[str, str]) -> str:
    changed = [one for one in data["countries"] if one["before"] != one["after"]]
    rows = [
        (
            escape(one["country"] or "unknown"),
            escape(one["service"]),
            _named(one["before"], colour),
            _named(one["after"], colour),
            _percent(one["share"]),
        )
        for one in changed[:_SHOWN]
    ]
    left = f"; {len(changed) - _SHOWN} smaller ones are left out" if len(changed) > _SHOWN else ""
    caption = f"Countries whose main region changes, those with most requests first{left}"
    table = _table(
        caption, ("country", "service", "before", "after", "share of requests"), rows, texts=4, style="tall"
    )
    return f"<h2>Countries</h2>{table or '<p>Every country keeps its main region.</p>'}"


def _spill(data: Mapping[str, Any]) -> str:
    sides = _sides(data, lambda made: {(one["from"], one["to"]): one["rate"] for one in made["spill"]})
    pairs = sorted(
        {pair for side in sides for pair in side}, key=lambda one: -max(s.get(one, 0) for s in sides)
    )
    rows = [
        (escape(f"{home} → {to}"), *(_rate(side.get((home, to), 0.0)) for side in sides))
        for home, to in pairs[:_SHOWN]
    ]
    table = _table("Requests/s that leave their home region for want of room", ("", *_FOUR), rows)
    return f"<h2>Spillover</h2>{table or '<p>Nobody leaves the home region.</p>'}"


def _refusals(data: Mapping[str, Any]) -> str:
    parts = []
    for key, caption in (
        ("reasons", "Requests/s refused, by reason"),
        ("rules", "Requests/s refused for residency, by each rule that keeps them from a region"),
    ):
        sides = _sides(data, lambda projection, key=key: projection["refused"][key])
        names = sorted({name for side in sides for name in side})
        rows = [(escape(name), *(_rate(side.get(name, 0.0)) for side in sides)) for name in names]
        parts.append(_table(caption, ("", *_FOUR), rows))
    return f"<h2>Refusals</h2>{''.join(parts) or '<p>Nobody is refused.</p>'}"


def _section(title: str, note: str, chart: str, table: str) -> str:
    return (
        f'<h2>{escape(title)}</h2><div class="pair"><figure>{chart}<figcaption>{escape(note)}</figcaption></figure>'
        f"{table}</div>"
    )


def _table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: int = 1,
    style: str = "scroll",
) -> str:
    """A table of cells that are HTML already; nothing for no rows. The first `texts` columns stand to the left."""
    held = list(rows)
    if not held:
        return ""

    def cells(tag: str, values: Sequence[str], scope: str = "") -> str:
        return "".join(
            f"<{tag}{scope}{' class=text' if number < texts else ''}>{value}</{tag}>"
            for number, value in enumerate(values)
        )

    head = cells("th", [escape(one) for one in heads], ' scope="col"')
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in held)
    return (
        f'<div class="{style}"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _named(name: str | None, colour: Mapping[str, str]) -> str:
    """A region with its colour."""
    fill = "var(--refused)" if name is None else colour.get(name, "var(--soft)")
    return f'<span class="swatch" style="background:{fill}"></span>{escape(name or "refused")}'


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _rate(value: float) -> str:
    return _figures(value) if value else "–"


def _figures(value: float) -> str:
    """A rate with as many digits as matter."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

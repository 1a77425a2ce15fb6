"""What `gtm top` shows of the API's document. Nothing is asked here, so that a screen follows from its document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gtm.cli.common import output
from gtm.cli.live.top import KEYS, Tab
from gtm.dashboard.tenants import together

if TYPE_CHECKING:
    from gtm.client import types

_BAR = 10
_LITTLE = 0.2
"""Requests per second below which a flow is what smoothing leaves of one that has ended."""
_OLD = 5.0
"""Seconds after which a plan is worth a warning: it is made anew every second."""
_FULL, _HIGH = 0.9, 0.7


def tabs(chosen: Tab, shown: RenderableType) -> RenderableType:
    """A screen below the names of all, with their keys."""
    names = Text("  ").join(
        Text(f" {key} {tab} ", style="reverse" if tab is chosen else "dim") for key, tab in KEYS.items()
    )
    return Group(Text.assemble(names, ("   q ends", "dim")), Text(), shown)


def screen(tab: Tab, found: types.TopView | types.InsideList, lost: str = "") -> RenderableType:
    """All of a tab.

    Args:
        tab: which.
        found: the document of `GET /v1/top`; of servers and tenants that of `GET /v1/balancers/inside`.
        lost: why it is old, if control does not answer now.
    """
    if tab is Tab.REGIONS:
        return _top(cast("types.TopView", found), lost)
    inside = cast("types.InsideList", found).items_
    parts: list[RenderableType] = [_lost(lost)] if lost else []
    parts += _servers(inside) if tab is Tab.SERVERS else _tenants(inside)
    return Group(*parts)


def _top(found: types.TopView, lost: str) -> RenderableType:
    parts: list[RenderableType] = [*_head(found, lost), Text(), _regions(found.regions)]
    sections = [("spillover", list(_spill(found)))]
    free_slots = (
        ("corrected by free slots", _corrected(found)),
        ("pushed by balancers", _pushed(found)),
    )
    sections += [(title, lines) for title, some in free_slots if (lines := list(some))]
    sections.append(("refused", list(_refused(found))))
    for title, lines in sections:
        parts += [Text(), Text(title, style="bold"), *(lines or [Text("  none", style="dim")])]
    return Group(*parts)


def _head(found: types.TopView, lost: str) -> Iterator[Text]:
    plan = found.plan
    age = plan.age
    tiers = ", ".join(f"{name} {rate:.0f}/s" for name, rate in found.decisions.items() if rate >= _LITTLE)
    edges = found.edges
    yield Text.assemble(
        ("requests ", "bold"),
        f"{found.requests_per_second:.0f}/s",
        f"  (decisions: {tiers})" if tiers else "",
        ("   estimated p99 ", "bold"),
        _ms(found.latency_p99_ms),
    )
    yield Text.assemble(
        ("revision ", "bold"),
        str(found.revision),
        ("   plan epoch ", "bold"),
        str(plan.epoch),
        "" if age is None else f", {age:.1f} s old, made in {plan.tick_ms:.0f} ms",
        ("   edges ", "bold"),
        str(len(edges)),
    )
    if lost:
        yield _lost(lost)
    if found.database != "up":
        yield Text(
            f"the database is {found.database.replace('_', '-')}: edges and plans go on, changes wait",
            style="bold yellow",
        )
    if plan.error:
        yield Text(f"no new plan: {output.plain(plan.error)}", style="bold red")
    elif age is not None and age > _OLD and not lost:
        yield Text("the plan is old: see control's log", style="bold yellow")
    if not edges:
        yield Text("no edge has been heard of for 10 s", style="bold yellow")


def _lost(why: str) -> Text:
    return Text(f"{output.plain(why)}; the screen is the last that it sent", style="bold red")


_NUMBERS = {"in use", "queue", "demand", "served", "price", "p99"} | {
    *("own", "work", "kv cache", "ejected", "weight", "running", "waiting", "share", "failed", "refused")
}


def _table(*headings: str) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for heading in filter(None, headings):
        made.add_column(heading, justify="right" if heading in _NUMBERS else "left", no_wrap=True)
    if "" in headings:  # remarks, which have what the others leave
        made.expand = True
        made.add_column("", no_wrap=True, ratio=1)
    return made


_UNSHOWN = "no balancer shows the inside of a region; each of gtm's does so every other second"


def _servers(inside: list[types.InsideView]) -> Iterator[RenderableType]:
    """Model servers as each balancer sees them, those first that something is wrong with, then those with least room."""
    made = _table("region", "server", "state", "load", "in use", "own", "work", "kv cache", "ejected", "")
    rows = [(balancer, server) for balancer in inside for server in balancer.servers]
    several = {one.region for one in inside if sum(other.region == one.region for other in inside) > 1}
    rows.sort(key=lambda row: (row[1].state == "up", -_used(row[1]), row[0].region, row[1].url, row[0].name))
    for balancer, server in rows:
        remarks = [f"seen by {balancer.name}"] if balancer.region in several else []
        remarks += [server.why] if server.why else []
        remarks += [f"version {server.version}"] if server.version else []
        remarks += [", ".join([*(server.models or ()), *(server.adapters or ())])]
        made.add_row(
            output.plain(balancer.region),
            Text(output.plain(server.url)),
            Text(output.plain(server.state), style=_STATES.get(server.state, "red")),
            bar(_used(server) if server.slots else None),
            f"{server.outstanding:.0f}/{_number(server.slots)}",
            _number(server.in_flight),
            f"{server.work_s:.0f} s",
            "–" if server.memory is None else f"{server.memory:.0%}",
            _number(server.ejections),
            Text(output.plain("; ".join(filter(None, remarks)))),
        )
    yield made if rows else Text(_UNSHOWN, style="dim")
    yield from _left_out(sum(one.servers_left_out for one in inside), "model servers")


def _used(server: types.ShownServerView) -> float:
    return server.outstanding / server.slots if server.slots else 0.0


_STATES = {"up": "green", "warming": "yellow", "trial": "yellow", "draining": "yellow", "unknown": "dim"}


def _tenants(inside: list[types.InsideView]) -> Iterator[RenderableType]:
    """Tenants by region, of all its balancers together; those first that are refused or have most."""
    made = _table("region", "tenant", "weight", "running", "share", "waiting", "served", "failed", "refused")
    found = together(inside)
    for one in sorted(found, key=lambda one: (-one.refused_per_second, -one.running, one.region, one.name)):
        made.add_row(
            output.plain(one.region),
            Text(output.plain(one.name) or "(none stated)", style="" if one.name else "dim"),
            _number(one.weight),
            _number(one.running),
            "–" if one.share is None else f"{one.share:.0%}",
            _number(one.waiting),
            _rate(one.requests_per_second),
            _rate(one.errors_per_second),
            Text(_rate(one.refused_per_second), style="red" if one.refused_per_second >= _LITTLE else ""),
        )
    yield made if found else Text(_UNSHOWN, style="dim")
    yield from _left_out(sum(one.tenants_left_out for one in inside), "tenants")


def _left_out(number: int, what: str) -> Iterator[Text]:
    if number:
        yield Text(f"{number} more {what} are not shown", style="dim")


def _regions(regions: list[types.TopRegion]) -> Table:
    made = _table(*("region", "health", "load", "in use", "queue", "demand", "served", "price", "p99", ""))
    for region in regions:
        made.add_row(
            Text(output.plain(region.region)),
            output.styled(region.health),
            bar(region.utilisation),
            f"{_number(region.outstanding)}/{_number(region.limit)}",
            _number(region.queue),
            _rate(region.demand),
            _rate(region.decided if region.requests_per_second is None else region.requests_per_second),
            _ms(region.price_ms) if region.price_ms >= 1 else "",
            _p99(region),
            ", ".join(_remarks(region)),
        )
    return made


def _p99(region: types.TopRegion) -> str:
    """As measured, to the ends of answers; or else, with a tilde, as it is estimated for what is planned."""
    measured = region.get("measured")  # an older control does not say
    estimated = _ms(region.latency_p99_ms)
    return _ms(measured.p99_ms) if measured else estimated and f"~{estimated}"


def bar(share: float | None) -> Text:
    """A share (0–1) as ten blocks."""
    if share is None:
        return Text("–" * _BAR, style="dim")
    filled = min(max(round(share * _BAR), 0), _BAR)
    style = "red" if share >= _FULL else "yellow" if share >= _HIGH else "green"
    return Text.assemble(("█" * filled, style), ("░" * (_BAR - filled), "dim"))


def _remarks(region: types.TopRegion) -> Iterator[str]:
    if region.admin_state != "active":
        yield region.admin_state
    if region.exhausted:
        yield "full by the plan"
    slots = region.get("free_slots")
    if slots:
        counted = slots.get("counted", slots.open)  # an older control does not say
        less = f" ({counted:g} count)" if counted < slots.open else ""
        waiting = f", {slots.waiting:g} waiting" if slots.waiting else ""
        yield f"{slots.open:g} of {slots.limit:g} slots free{less}{waiting}"
    if region.freshness != "fresh":
        yield "no load reports" if region.freshness == "never" else f"reports {region.freshness}"
    measured = region.get("measured")
    if measured:
        first, end = measured.first_byte_p99_ms or 0.0, measured.p99_ms or 0.0
        if 0 < first * 9 / 8 < end:  # further apart than the buckets in which they are counted are wide
            yield f"first byte p99 {_ms(first)}"


def _spill(found: types.TopView) -> Iterator[Text]:
    quotas = {quota.name: quota for quota in found.quotas}
    for flow in found.spill:
        if max(flow.requests_per_second, flow.planned) < _LITTLE:
            continue
        named = [quotas[name] for name in flow.quotas if name in quotas]
        told = ", ".join(
            f"{output.plain(quota.name)}: {quota.planned / quota.allowed:.0%} of {_rate(quota.allowed)}"
            for quota in named
            if quota.allowed
        )
        yield _flow(flow, told)


def _flow(one: types.TopSpill | types.TopCorrection | types.TopPush, told: str = "") -> Text:
    """From where to where, how much, and what is told of it."""
    came = "refused" if one.from_ is None else output.plain(one.from_)
    return Text.assemble(
        f"  {came} ",
        ("→", "bold cyan"),
        f" {output.plain(one.to)}  {_rate(one.requests_per_second)}",
        f"  ({told})" if told else "",
    )


def _corrected(found: types.TopView) -> Iterator[Text]:
    for flow in found.get("corrections", ()):  # of an older control there are none
        if flow.requests_per_second >= _LITTLE:
            yield _flow(flow)


_STAYED = {
    "no_room": "no peer inside the fence has room",
    "no_quota": "no token of a spillover quota",
    "nothing_gained": "sooner here than at a peer",
    "one_hop": "pushed here already",
    "no_key": "the balancer's key is not published yet",
    "no_handoff": "the law is about to change",
}
_HOW = {"redirected": "by redirect", "failed": "not taken"}


def _pushed(found: types.TopView) -> Iterator[Text]:
    """From where to where; then what each region kept, and why."""
    kept: dict[str, list[types.TopPush]] = {}
    for one in found.get("pushes", ()):  # of an older control there are none
        if one.requests_per_second < _LITTLE:
            continue
        if one.to is None:
            kept.setdefault(one.from_, []).append(one)
            continue
        told = [_HOW[one.why]] if one.why in _HOW else []
        told += [output.plain(name) for name in one.quotas]
        yield _flow(one, ", ".join(told))
    for region, several in kept.items():
        whys = [
            f"{_STAYED.get(one.why, output.plain(one.why))} {_rate(one.requests_per_second)}"
            for one in several
        ]
        yield Text.assemble(f"  {output.plain(region)} keeps  ", (", ".join(whys), "dim"))


def _refused(found: types.TopView) -> Iterator[Text]:
    for one in found.refusals:
        if one.requests_per_second >= _LITTLE:
            reason = output.plain(one.outcome).removeprefix("refused_")
            yield Text.assemble(
                f"  {output.plain(one.service)}: ",
                (reason, "red"),
                f" {_rate(one.requests_per_second)}",
            )


def _rate(value: float) -> str:
    return f"{value:.1f}/s" if value < 9.95 else f"{value:.0f}/s"


def _ms(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f} ms" if value < 9_950 else f"{value / 1000:.0f} s"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"

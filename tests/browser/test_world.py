"""The map before a live world: what happens is seen, without looking again."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from gtm.core.demand.cells import cell_of
from gtm.core.demand.rows import ClassKey, Row
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.storage.embedded.server import connection_url
from gtm.storage.session import Database
from tests.browser.checks import assert_good
from tests.browser.conftest import NARROW, PATIENCE_MS, WIDE, Open
from tests.system.harness import System


def flows(page: Page) -> dict[str, float]:
    """Requests per second that the map draws, by region."""
    found: dict[str, float] = json.loads(page.locator("#map").get_attribute("data-flows") or "{}")
    return found


def until_flows(page: Page, holds: str) -> None:
    """Wait until something holds of the map's flows, `f`, without loading the page again. While a part is replaced there is no map."""
    script = f"() => {{ const f = JSON.parse(document.getElementById('map')?.dataset.flows || '{{}}'); return {holds}; }}"
    try:
        page.wait_for_function(script, timeout=PATIENCE_MS)
    except PlaywrightTimeout as error:
        said = page.locator(".side").inner_text()
        raise AssertionError(f"never {holds}; at last {flows(page)}; beside the map: {said}") from error


def test_a_region_that_fails_is_seen(traffic: System, visit: Open) -> None:
    """Frankfurt fails: its flows move to Dublin on the map, its place is marked, and a sentence says so; and back again."""
    page = visit("/")
    until_flows(page, "f['eu-central'] > 1")
    frankfurt = page.locator("a.region[data-region=eu-central]")
    expect(frankfurt).to_have_class("region up")
    traffic.demo("fail", "eu-central")
    try:
        until_flows(page, "!(f['eu-central'] > 0.5) && f['eu-west'] > 0.2")
        expect(frankfurt).to_have_class("region down")
        expect(page.locator(".side")).to_contain_text("Region eu-central is down")
        expect(page.locator("#served-eu-central")).to_contain_text("down")
    finally:
        traffic.demo("restore", "eu-central")
    until_flows(page, "f['eu-central'] > 1")
    expect(page.locator(".side")).not_to_contain_text("Region eu-central is down")


def test_what_is_shown_can_be_narrowed(traffic: System, visit: Open) -> None:
    """By service and by the clients' country; the address says how, and can be shared."""
    page = visit("/")
    until_flows(page, "Object.keys(f).length > 2")
    page.get_by_label("Service").select_option("chat")
    expect(page).to_have_url(f"{traffic.control}/?service=chat")
    page.get_by_role("link", name="Show all").click()
    expect(page).to_have_url(f"{traffic.control}/")


def record(world: System, minutes: dict[datetime, tuple[str, float]]) -> None:
    """Let a demo world have recorded requests for chat from Berlin in these minutes: the region that served, and how many."""
    cell = cell_of(Request("chat", Location("DE", lat=52.5, lon=13.4)), Priority.REAL_TIME)
    key = ClassKey("chat", "real_time", ("eu-central", "eu-west"), "0").text

    async def work() -> None:
        database = Database(connection_url(world.data_dir))
        async with database.transaction() as tx:
            for minute, (region, count) in minutes.items():
                await tx.demand.record(
                    minute, "test", {Row("chat", region, "served", "http", key, cell): count}
                )
        await database.dispose()

    with ThreadPoolExecutor(1) as apart:  # a test in a browser has a running loop in its own thread
        apart.submit(asyncio.run, work()).result()


def test_the_last_days_can_be_scrubbed(traffic: System, visit: Open) -> None:
    """The slider shows the minute that it stands on, by keyboard too; the address is that minute; nothing of now comes in between."""
    first = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    later = first + timedelta(minutes=5)
    record(traffic, {first: ("eu-central", 120.0), later: ("eu-west", 60.0)})
    page = visit("/")
    until_flows(page, "Object.keys(f).length > 2")
    slider, when = page.get_by_role("slider"), page.locator("[data-live=when]")
    since, step = (
        int(page.locator("form.when").get_attribute(f"data-{name}") or 0) for name in ("since", "step")
    )
    slider.fill(str(round((first.timestamp() - since) / step)))
    until_flows(page, "JSON.stringify(f) === '{\"eu-central\":2}'")
    expect(when).to_contain_text(f"{first:%Y-%m-%d %H:%M}:00 UTC")
    expect(when).to_contain_text("here)")
    slider.press("ArrowRight")
    until_flows(page, "JSON.stringify(f) === '{\"eu-west\":1}'")
    expect(slider).to_have_attribute("aria-valuetext", f"{later:%Y-%m-%d %H:%M} UTC")
    expect(page.locator(".side")).to_contain_text("Away from the region liked best")
    assert f"at={later:%Y-%m-%dT%H}%3A{later:%M}" in page.url
    assert_good(page)
    page.reload()
    until_flows(page, "JSON.stringify(f) === '{\"eu-west\":1}'")
    page.get_by_label("Service").select_option("chat")
    page.wait_for_url("**service=chat**")
    expect(when).to_contain_text(f"{later:%Y-%m-%d %H:%M}:00 UTC")
    page.get_by_role("link", name="Back to now").click()
    until_flows(page, "Object.keys(f).length > 2")
    expect(when).to_contain_text("Now")


def test_a_country_is_a_click_away(traffic: System, visit: Open) -> None:
    """What the pointer is on is said and is a link; its page is good to all."""
    page = visit("/")
    until_flows(page, "Object.keys(f).length > 2")
    place = page.locator("a.region[data-region=sa-east] .core").bounding_box()
    assert place is not None
    page.mouse.move(place["x"] - 30, place["y"] - 25)
    expect(page.locator(".told")).to_contain_text("Brazil")
    page.mouse.click(place["x"] - 30, place["y"] - 25)
    expect(page).to_have_url(f"{traffic.control}/countries/BR")
    expect(page.locator("h1")).to_have_text("Brazil")
    assert_good(page)


def test_nothing_moves_when_numbers_do(traffic: System, visit: Open) -> None:
    """No part of the page is pushed aside by what comes each second (Layout Instability: `layout-shift`); countries alone change places, by rank."""
    page = visit("/")
    until_flows(page, "Object.keys(f).length > 2")
    watch = """() => {
        window.moved = []; window.came = 0;
        const ranked = (one) => !one.node || one.node.parentElement?.closest('table.from');
        // A number of more digits, aligned to the right, begins further left in the same place.
        const stays = (one) => ['x', 'y', 'width', 'height'].every((side) => one.previousRect[side] === one.currentRect[side]);
        const said = (one) => [one.node.outerHTML || one.node.textContent, one.previousRect, one.currentRect].map((part) => JSON.stringify(part).slice(0, 150));
        // Words may push: that a region is down, that requests spill. What moves in the frame in which they come is theirs.
        const spoken = [];
        const words = () => [...document.querySelectorAll('#connection, .side, .tables p, .tables .state')].map((one) => one.hidden ? '' : one.textContent.replace(/[0-9.,]+/g, '')).join();
        let last = words();
        new MutationObserver(() => {
            if (words() === last) return;
            last = words();
            const frame = {from: performance.now(), to: Infinity};
            spoken.push(frame);
            requestAnimationFrame(() => requestAnimationFrame(() => { frame.to = performance.now(); }));
        }).observe(document.body, {subtree: true, childList: true, characterData: true, attributeFilter: ['hidden']});
        const byWords = (one) => spoken.some((frame) => frame.from <= one.startTime && one.startTime <= frame.to);
        new PerformanceObserver((list) => {
            for (const one of list.getEntries()) {
                if (!byWords(one) && !one.sources.every((part) => ranked(part) || stays(part))) window.moved.push([one.value, one.sources.map(said)]);
            }
        }).observe({type: 'layout-shift'});
        document.addEventListener('live:scene', () => window.came++);
    }"""
    page.evaluate(watch)
    page.wait_for_function("() => window.came >= 6", timeout=PATIENCE_MS)
    assert page.evaluate("window.moved") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
def test_it_is_good_to_all(traffic: System, visit: Open, scheme: str, viewport: dict[str, int]) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit("/", viewport=viewport, color_scheme=scheme)
    until_flows(page, "Object.keys(f).length > 2")
    assert_good(page)


def test_without_scripts_the_table_says_it(traffic: System, visit: Open) -> None:
    """What the map draws, as text."""
    page = visit("/", java_script_enabled=False, expects_errors=True)  # a page of nothing is a 404
    expect(page.locator("#served-eu-central")).to_contain_text("eu-central")
    expect(page.locator(".tiles")).to_contain_text("requests")
    page.get_by_label("At (UTC)").fill("2020-02-29T12:30")
    page.get_by_role("button", name="Show then").click()
    expect(page.locator("form.when")).to_contain_text("Nothing is recorded")
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator("form.when")).to_contain_text("Now")

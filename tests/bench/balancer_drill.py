"""What may not happen to a region's streams, live: `python tests/bench/balancer_drill.py [--only drain] [--small]`.

Real processes: `gtm balancer`, a new one for each scene, before `gtm demo backend`.

    drain   200 streams go on; the balancer is replaced (`--replace`), and in a second round ended (SIGTERM): none is lost
    change  50 streams go on; the file changes three times (a backend more, one less, one draining and other reserves): none is cut
    kill    kill -9 of a model server: its streams end by an error or break off, none looks whole; others go on; nothing stays counted
    cancel  50 clients disappear: how long until nothing is in flight; also where model servers are silent; also in a plane on this event
            loop, by its own counts
    burst   eight times the calm rate for a minute, slots for the real-time part alone: batch is shed, real-time is not

It prints a table, and JSON on the last line: scene → its figures, and `broken`: the promises that did not hold; then it exits with 1.
`--small` is all of it in some seconds, all scenes at once: times then say little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from tests.ports import free_port

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.balancer.world import world
from tests.bench.drill_clients import Ask, ask, begin, live, over, page, quantile_ms, until
from tests.system.balancers import PATIENT, Backends, LoneBalancer

SERVERS = ("--slots", "256", "--step-ms", "40", "--sequence-ms", "0.2")
"""About 24 tokens a second for few streams, 16 for a hundred."""
FACTOR = 8
TIERS = {"real_time": (6.0, 5), "batch": (4.0, 15)}
"""Requests a second while it is calm, and their tokens."""
SLOTS, RESERVE = 32, 0.75
"""In the burst, real-time requests take somewhat more than a third of these, and batch would take two thirds."""
BATCH_WAITS = "1"
"""Seconds that a batch request would wait."""

Row = dict[str, Any]


class Drill:
    """Its processes, and what came out.

    Args:
        folder: for files.
        small: short scenes.
    """

    def __init__(self, folder: Path, stack: ExitStack, *, small: bool) -> None:
        self.folder, self.small, self._stack = folder, small, stack
        self.figures: dict[str, dict[str, Any]] = {}
        self.broken: list[str] = []
        self._free = 0
        self._servers = self.servers("servers", 9)

    def servers(self, name: str, count: int) -> Backends:
        """Model servers in a process of their own."""
        found = Backends(self.folder / f"{name}.log", count, *SERVERS)
        self._stack.callback(found.process.popen.wait)
        self._stack.callback(found.process.popen.kill)
        return found

    def some(self, count: int) -> Servers:
        """Some of the shared process that no other scene has."""
        first, self._free = self._free, self._free + count
        return Servers(self._servers, first, count)

    def promise(self, scene: str, what: str, *, holds: bool) -> None:
        """Something that has to be so."""
        if not holds:
            self.broken.append(f"{scene}: {what}")

    @asynccontextmanager
    async def region(self, name: str, rows: list[Row], **admission: Any) -> AsyncIterator[Region]:
        """A balancer before these."""
        made = Region(self.folder / name, rows, PATIENT | admission)
        try:
            await asyncio.to_thread(made.balancer.wait)
            await made.stands(rows)
            yield made
        finally:
            made.balancer.process.popen.kill()
            made.balancer.process.popen.wait()


class Servers:
    """Model servers of a process."""

    def __init__(self, of: Backends, first: int, count: int) -> None:
        self._of, self._admin = of, int(of.admin.rpartition(":")[2])
        self._part = slice(first, first + count)
        self.urls = of.urls[self._part]

    async def each(self, what: str) -> list[int]:
        """A figure of each: `running`, `waiting`, `arrived`."""
        found = (await page(self._admin, "/demo/state"))["backends"][self._part]
        return [int(one[what]) for one in found]

    async def switch(self, mode: str) -> None:
        """Make all of them fail, or heal them (`ok`)."""
        for number in range(self._part.start, self._part.stop):
            await asyncio.to_thread(self._of.fail, number, mode)

    async def idle(self) -> bool:
        """Whether they have nothing to do."""
        return not sum(await self.each("running")) + sum(await self.each("waiting"))


class Region:
    """A balancer and its file."""

    def __init__(self, folder: Path, rows: list[Row], admission: Row) -> None:
        folder.mkdir()
        self._file, self._admission = folder / "balancer.yaml", admission
        self.write(rows)
        ports = {"fra": free_port(), "iad": free_port()}
        self.balancer = LoneBalancer(folder, "fra", ports, "--file", str(self._file))
        self.port = self.balancer.port

    def write(self, rows: list[Row], **admission: Any) -> None:
        """Another file, in one step."""
        document = {"service": "chat", "backends": rows, "admission": self._admission | admission}
        part = self._file.with_suffix(".new")
        part.write_text(json.dumps(document))
        part.replace(self._file)

    async def state(self) -> Any:
        """Its page."""
        return await page(self.balancer.admin_port, "/state")

    async def in_flight(self) -> int:
        """Requests at its backends, those that are no more in its file included as long as they are shown."""
        state = await self.state()
        counted = sum(one["in_flight"] for one in state["backends"])
        running = sum(one["running"] + one["waiting"] for one in state["tiers"].values())
        return int(max(counted, running))

    async def stands(self, rows: list[Row]) -> None:
        """Wait until it has these backends, and has looked at them."""

        async def so() -> bool:
            found = {one["url"]: one["state"] for one in (await self.state())["backends"]}
            wanted = {row["url"]: row.get("draining", False) for row in rows}
            return found.keys() == wanted.keys() and all(
                (state == "draining") == wanted[url] and state not in ("unknown", "down")
                for url, state in found.items()
            )

        await until(so, f"the balancer has {[row['url'] for row in rows]}")

    async def alone(self) -> bool:
        """Whether the first backend is out."""
        return (await self.state())["backends"][0]["state"] in ("down", "ejected")

    async def at_rest(self) -> None:
        """Wait until nothing is in flight.

        Raises:
            AssertionError: something stays counted.
        """

        async def so() -> bool:
            return not await self.in_flight()

        await until(so, "nothing is in flight")


def rows_of(urls: list[str], slots: int = 256) -> list[Row]:
    """Backends of a file."""
    return [{"url": url, "slots": slots} for url in urls]


async def drain(drill: Drill) -> None:
    """Replaced, then ended, amid streams."""
    servers = drill.some(2)
    count, tokens = (40, 60) if drill.small else (200, 150)
    found: dict[str, Any] = {"streams": count}
    async with drill.region("drain", rows_of(servers.urls)) as region:
        balancer = region.balancer
        for way in ("--replace", "SIGTERM"):
            streams = await begin(region.port, count, tokens)
            before, meanwhile = balancer.process, Counter[str]()
            found[f"live at {way}"] = live(streams)
            if way == "SIGTERM":
                before.signal(signal.SIGTERM)
            else:
                balancer.process = balancer.start(way)
            while before.popen.poll() is None and any(not one.over.is_set() for one in streams):
                if way == "SIGTERM":
                    await asyncio.sleep(0.02)
                else:
                    meanwhile.update(await over([await ask(region.port, 1)]))
            ends = Counter(await over(streams))
            code = await asyncio.to_thread(before.end)
            found[f"lost by {way}"] = lost = count - ends["whole"]
            drill.promise("drain", f"{way} loses {dict(ends)}", holds=lost == 0)
            drill.promise("drain", f"{way}: the process ends with {code}", holds=code == 0)
            drill.promise("drain", f"{way} found no stream", holds=found[f"live at {way}"] > 0)
            if way != "SIGTERM":
                found["new meanwhile"], found["of these failed"] = (
                    meanwhile.total(),
                    meanwhile.total() - meanwhile["whole"],
                )
                drill.promise("drain", f"new requests: {dict(meanwhile)}", holds=not found["of these failed"])
                await asyncio.to_thread(balancer.wait)
    drill.figures["drain"] = found


async def change(drill: Drill) -> None:
    """The file changes three times."""
    servers = drill.some(3)
    count, tokens = (20, 110) if drill.small else (50, 200)
    first, second, third = rows_of(servers.urls)
    async with drill.region("change", [first, second]) as region:
        streams = await begin(region.port, count, tokens)
        went_on = []
        for rows, admission in (
            ([first, second, third], {}),
            ([second, third], {}),
            ([second | {"draining": True}, third], {"reserves": {"real_time": 0.5, "near_real_time": 0.1}}),
        ):
            region.write(rows, **admission)
            await region.stands(rows)
            went_on.append(live(streams))
        before = await servers.each("arrived")
        # So many at once that they would not all go to the least used of two.
        new = Counter(await over(await begin(region.port, 2 * count, 20)))
        arrived = [now - then for now, then in zip(await servers.each("arrived"), before, strict=True)]
        ends = Counter(await over(streams))
        await region.at_rest()
    drill.figures["change"] = {
        "streams": count,
        "live after each change": went_on,
        "cut": count - ends["whole"],
        "new at each backend": arrived,
    }
    drill.promise("change", f"streams end {dict(ends)}", holds=ends["whole"] == count)
    drill.promise("change", "no stream lived through the changes", holds=went_on[-1] > 0)
    drill.promise("change", f"new requests end {dict(new)}", holds=set(new) == {"whole"})
    drill.promise("change", f"new requests go to {arrived}", holds=arrived == [0, 0, 2 * count])


async def kill(drill: Drill) -> None:
    """A model server dies."""
    process = await asyncio.to_thread(drill.servers, "victim", 1)
    victim, other = Servers(process, 0, 1), drill.some(1)
    count, tokens = (20, 50) if drill.small else (100, 120)
    async with drill.region("kill", rows_of(victim.urls + other.urls)) as region:
        streams = await begin(region.port, count, tokens)
        (hit,) = await victim.each("running")
        all_live = live(streams) == count
        process.process.popen.kill()
        await asyncio.to_thread(process.process.popen.wait)
        early = [await ask(region.port, 2) for _ in range(10)]
        at_once = await over(early)
        ends = Counter(await over(streams))
        await region.at_rest()
        await until(region.alone, "the dead one is out")
        before = await other.each("arrived")
        later = await over([await ask(region.port, 2) for _ in range(10)])
        arrived = (await other.each("arrived"))[0] - before[0]
        await region.at_rest()
        left = await region.in_flight()
    broken = ends["told"] + ends["broken"]
    drill.figures["kill"] = {
        "streams": count,
        "at the killed": hit,
        "told by an event": ends["told"],
        "broken connections": ends["broken"],
        "false ends": ends["false"],
        "whole": ends["whole"],
        "in flight at the end": left,
        "new at once, whole": at_once.count("whole"),
        "of these refused": dict(Counter(one.code for one in early if one.status != 200)),
        "new later, by the other": arrived,
    }
    drill.promise("kill", f"streams end {dict(ends)} with {hit} at the killed", holds=hit > 0 and all_live)
    drill.promise("kill", f"{hit} were hit, and {dict(ends)}", holds=broken == hit)
    drill.promise("kill", f"the others: {dict(ends)}", holds=ends["whole"] == count - hit)
    drill.promise("kill", f"new requests at once: {at_once}", holds=set(at_once) == {"whole"})
    drill.promise("kill", f"new requests later: {later}", holds=later == ["whole"] * 10 and arrived == 10)


async def cancel(drill: Drill) -> None:
    """Clients disappear, at a process and at a plane on this loop."""
    servers, rounds, count = drill.some(2), (1 if drill.small else 5), 50
    found: dict[str, Any] = {"clients": count, "rounds": rounds}

    async def since(began: float, holds: Callable[[], Awaitable[bool]]) -> float:
        await until(holds, "nothing is left in flight", pause=0)
        return time.perf_counter() - began

    async with drill.region("cancel", rows_of(servers.urls)) as region:

        async def free() -> bool:
            return not await region.in_flight()

        times = []
        for _ in range(rounds):
            streams = await begin(region.port, count, 4000)
            drill.promise("cancel", "not all went on", holds=await region.in_flight() == count)
            began = disappear(streams)
            times.append(await asyncio.gather(since(began, free), since(began, servers.idle)))
        streams = await begin(region.port, count, 4000)
        await servers.switch("dead")  # no token comes any more that would find nobody there
        disappear(streams)
        await until(servers.idle, "silent model servers are told of clients that are gone")
        await servers.switch("ok")
        await region.at_rest()
    for number, where in enumerate(("balancer", "backends")):
        found[f"{where}, as polled: median ms"] = quantile_ms([one[number] for one in times], 0.5)
        found[f"{where}, as polled: most ms"] = quantile_ms([one[number] for one in times], 1.0)
    each, last = [], []
    async with world(*servers.urls) as plane:
        for _ in range(rounds):
            streams = await begin(plane.address[1], count, 4000)
            drill.promise("cancel", "not all went on in the plane", holds=plane.picker.in_flight == count)
            began, ended = disappear(streams), 0
            async with asyncio.timeout(60):
                while ended < count:
                    await asyncio.sleep(0)
                    now, gone = time.perf_counter(), count - plane.picker.in_flight
                    each += [now - began] * (gone - ended)
                    ended = gone
            last.append(each[-1])
    await until(servers.idle, "model servers are idle")
    found["in the plane, a client: median ms"] = quantile_ms(each, 0.5)
    found["in the plane, a client: most ms"] = quantile_ms(each, 1.0)
    found["in the plane, all 50: median ms"] = quantile_ms(last, 0.5)
    drill.figures["cancel"] = found


def disappear(streams: list[Ask]) -> float:
    """All of them are gone, one half by a reset; since when."""
    began = time.perf_counter()
    for number, one in enumerate(streams):
        if number % 2:
            one.transport.abort()
        else:
            one.transport.close()
    return began


async def burst(drill: Drill) -> None:
    """Eight times as much."""
    servers, random = drill.some(1), Random(1)
    parts = {"calm": (1.5 if drill.small else 20.0, 1), "burst": (6.5 if drill.small else 60.0, FACTOR)}
    asked: dict[tuple[str, str], list[Ask]] = {(part, tier): [] for part in parts for tier in TIERS}

    async def send(port: int, part: str, tier: str, seconds: float, factor: int) -> None:
        rate, tokens = TIERS[tier]
        more = {"gtm_timeout": BATCH_WAITS} if tier == "batch" else {}
        began = due = time.monotonic()
        while (due := due + random.expovariate(rate * factor)) < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            asked[part, tier].append(await ask(port, tokens, gtm_priority=tier, **more))

    reserves = {"real_time": RESERVE, "near_real_time": 0.0, "batch": 0.0}
    async with drill.region("burst", rows_of(servers.urls, SLOTS), reserves=reserves) as region:
        for part, (seconds, factor) in parts.items():
            async with asyncio.TaskGroup() as group:
                for tier in TIERS:
                    group.create_task(send(region.port, part, tier, seconds, factor))
        ends = {key: Counter(await over(streams)) for key, streams in asked.items()}
        await region.at_rest()
    found: dict[str, Any] = {"slots": SLOTS}
    for (part, tier), streams in asked.items():
        name = f"{tier}, {part}"
        found[f"{name}: asked"] = len(streams)
        found[f"{name}: served"] = ends[part, tier]["whole"]
        firsts = [one.first for one in streams if one.status == 200]
        for title, quantile in (("p50", 0.5), ("p99", 0.99)):
            found[f"{name}: first byte {title} ms"] = quantile_ms(firsts, quantile)
        found[f"{name}: refused"] = dict(Counter(one.code for one in streams if one.status != 200))
    drill.figures["burst"] = found
    for part in parts:
        urgent = ends[part, "real_time"]
        drill.promise("burst", f"real-time, {part}: {dict(urgent)}", holds=set(urgent) == {"whole"})
    batch = ends["burst", "batch"]
    codes = {one.status for one in asked["burst", "batch"]}
    drill.promise(
        "burst", f"batch ends {dict(batch)}", holds=batch["whole"] + batch["refused"] == batch.total()
    )
    drill.promise("burst", f"batch is not shed: {dict(batch)}", holds=batch["refused"] > batch.total() / 10)
    drill.promise("burst", f"batch is answered {codes}", holds=codes <= {200, 429, 503, 504})
    if drill.small:  # of a few seconds times say nothing: batch that is served has waited for a second at the most, and a busy machine stands still for longer
        return
    urgent_ms, batch_ms = (found[f"{tier}, burst: first byte p99 ms"] for tier in TIERS)
    in_order = batch_ms is None or (urgent_ms is not None and urgent_ms < batch_ms)
    drill.promise("burst", f"p99 of real-time {urgent_ms} ms, of batch {batch_ms} ms", holds=in_order)


SCENES = {"drain": drain, "change": change, "kill": kill, "cancel": cancel, "burst": burst}


async def run(folder: Path, only: list[str] | None = None, *, small: bool = False) -> Drill:
    """Play scenes: one after the other, or at once if they are small."""
    with ExitStack() as stack:
        drill = await asyncio.to_thread(Drill, folder, stack, small=small)
        scenes = [SCENES[name] for name in only or SCENES]
        if small:
            async with asyncio.TaskGroup() as group:
                for scene in scenes:
                    group.create_task(guarded(drill, scene))
        else:
            for scene in scenes:
                await guarded(drill, scene)
        return drill
    raise AssertionError("unreachable")


async def guarded(drill: Drill, scene: Callable[[Drill], Awaitable[None]]) -> None:
    """What a scene waited for in vain is a broken promise too; others go on."""
    try:
        await scene(drill)
    except (AssertionError, TimeoutError) as error:
        drill.broken.append(f"{scene.__name__}: {error!r}")  # type: ignore[attr-defined]


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SCENES, action="append")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        drill = uvloop.run(run(Path(folder), arguments.only, small=arguments.small))
    for scene, figures in drill.figures.items():
        for what, value in figures.items():
            print(f"{scene:8} {what:44} {value}")
    for one in drill.broken:
        print(f"BROKEN   {one}")
    told = {"broken": drill.broken, "seconds": round(time.monotonic() - began, 1), "load": os.getloadavg()[0]}
    print(json.dumps(drill.figures | told))
    sys.exit(1 if drill.broken else 0)


if __name__ == "__main__":
    main()

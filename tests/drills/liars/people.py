"""What one operator, or one admin of two, can do by changes of policy where somebody else has to approve of what opens a fence.

A real control process with its API and database. The liar sends changes of every kind, forced or not, in a row: resources with
fields changed, deleted and made anew, whole policies, roll-backs. An admin also approves of its own changes, by tokens that it makes for that.
The second person never acts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any, ClassVar

import httpx

from gtm.core.decision.router import Router
from gtm.core.model.access import Role
from gtm.core.model.policy import Policy, Tenant
from gtm.core.model.requests import Request
from gtm.core.model.services import HostName, Zone
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.schema import PolicyDocument, concise_policy
from gtm.storage import migrate
from gtm.storage.embedded import EmbeddedPostgres
from tests import worlds
from tests.api.conftest import TOKENS, Server, prepare
from tests.drills.liars.arena import Arena, Damage
from tests.drills.liars.edge import CLIENTS, EEA, REGIONS

DRAWS = [number / 10 for number in range(10)]
STEPS = 6
"""Changes in a row that a lie has at the most."""
FORCED = {"force": True, "force_reason": "it must be"}
ELSEWHERE = "somewhere"
"""A region that the liar makes up, wherever it says."""
HOSTS = {"chat.demo.test": EEA, "bank.demo.test": frozenset({"de"})}
"""Host name → the regions where its clients of the EEA may be served; the second one's, wherever they are."""


EMPTY = {"acknowledge_empty_fence": True}


def law(*, extra: bool) -> Policy:
    """Five regions, a service for everybody and for a bank, and a fence for each."""
    return worlds.policy(
        *worlds.regions(" ".join(REGIONS)),
        Zone("demo.test", "ns1.demo.test", "hostmaster.demo.test"),
        worlds.service(
            "chat",
            " ".join(REGIONS),
            hostnames=(
                HostName("chat.demo.test", tenant="public"),
                HostName("bank.demo.test", tenant="bank"),
            ),
            zone="demo.test",
        ),
        *([worlds.service("other", "us jp")] if extra else []),
        worlds.rule("gdpr", "EEA", client_jurisdictions="EEA", services="" if extra else "chat", **EMPTY),
        worlds.rule("bank", "DE", tenants="bank", **EMPTY),
        *map(Tenant, ("bank", "public")),
    )


@dataclass(frozen=True)
class Setting:
    """Whether there is another service, and rules that name none."""

    extra: bool


@dataclass(frozen=True)
class Change:
    """One thing that is sent: a method, a path, a body; forced or not; approved of with a token of the liar's own or not."""

    method: str
    path: str
    body: Any
    forced: bool
    approved: bool


@dataclass(frozen=True)
class Lie:
    """Changes in a row; a field each, so that climbing mixes them."""

    first: Change | None = None
    second: Change | None = None
    third: Change | None = None
    fourth: Change | None = None
    fifth: Change | None = None
    sixth: Change | None = None

    @property
    def changes(self) -> list[Change]:
        """Those that there are."""
        steps = (self.first, self.second, self.third, self.fourth, self.fifth, self.sixth)
        return [one for one in steps if one is not None]


@dataclass(frozen=True)
class Outcome:
    """By host name and client: how often which region answers. `outside`: those that may, beyond the fence as it was before anybody lied."""

    answers: Mapping[tuple[str, str], Counter[str]]
    outside: int
    codes: Mapping[int, int]


_NAMES: list[Any] = [
    "chat.demo.test",
    "bank.demo.test",
    *({"name": name, "tenant": tenant} for name in HOSTS for tenant in ("bank", "public", "mine")),
]
"""Host names, with what a liar has them state."""


def _regions(rng: random.Random) -> list[str]:
    return rng.sample(REGIONS, rng.randint(1, 5))


def _matched(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rng.random() < 0.5:
        found["services"] = [rng.choice(("chat", "other", "free"))]
    if rng.random() < 0.6:
        found["client_jurisdictions"] = [rng.choice(("EEA", "EU", "UK", "OWN"))]
    if rng.random() < 0.3:
        found["tenants"] = [rng.choice(("bank", "public"))]
    return found


def _changed(rng: random.Random, document: dict[str, Any], kind: str) -> dict[str, Any]:
    """A document with some fields as a liar would have them."""
    found = deepcopy(document)
    wild: dict[str, list[Any]] = {
        "regions": [
            {"country": rng.choice(("DE", "US", "FR", "IE", "JP"))},
            {"operator_country": rng.choice(("DE", "US"))},
            {"lat": rng.uniform(-60, 60), "lon": rng.uniform(-170, 170)},
            {"admin_state": rng.choice(("active", "draining", "disabled"))},
            {"endpoints": [{"url": f"https://{rng.choice(REGIONS)}.test", "addresses": ["192.0.2.7"]}]},
        ],
        "services": [
            {"members": [{"region": name} for name in _regions(rng)]},
            {"hostnames": rng.sample(_NAMES, rng.randint(0, 2))},
            {"hostnames": rng.sample(_NAMES, rng.randint(0, 2))},
            {"steering": rng.choice(("latency", "weighted", "geo"))},
            {"on_unusable": rng.choice(("refuse", "any_in_fence"))},
            {"exploration": rng.choice((0.0, 0.5))},
        ],
        "residency_rules": [
            {"mode": rng.choice(("monitor", "enforce"))},
            {"allow": rng.choice(({"jurisdictions": ["EEA", "US"]}, {"regions": _regions(rng)}, {"jurisdictions": ["OWN"]}))},
            {"match": _matched(rng)},
            {"effective_until": "2030-01-01T00:00:00Z"},
            {"effective_from": "2030-01-01T00:00:00Z"},
            {"on_unknown_location": rng.choice(("match", "ignore"))},
            {"max_policy_age": 60},
        ],
        "tenants": [{"country": rng.choice(("DE", "US"))}],
        "jurisdictions": [{"members": rng.sample(["DE", "US", "JP", "EU"], 2)}],
        "zones": [{"negative_ttl": 5}],
    }  # fmt: skip
    for change in rng.sample(wild[kind], min(len(wild[kind]), rng.randint(1, 2))):
        found |= change
    return found


def draw_change(rng: random.Random, base: dict[str, Any]) -> Change:
    """A change of any kind."""
    forced, approved = rng.random() < 0.6, rng.random() < 0.5
    what = rng.random()
    names = {kind: [one["name"] for one in base.get(kind, [])] for kind in base}
    if what < 0.1:
        return Change("POST", f"/v1/revisions/{rng.randint(1, 9)}:rollback", None, forced, approved)
    if what < 0.25:
        whole = deepcopy(base)
        kind = rng.choice([kind for kind in whole if isinstance(whole[kind], list) and whole[kind]])
        if rng.random() < 0.5:
            whole[kind] = whole[kind][1:]
        else:
            number = rng.randrange(len(whole[kind]))
            whole[kind][number] = _changed(rng, whole[kind][number], kind)
        partial = rng.random() < 0.3
        return Change("POST", "/v1/policy:apply", {"policy": whole, "partial": partial}, forced, approved)
    kind = rng.choice(
        ("regions", "services", "services", "residency_rules", "residency_rules", "tenants", "jurisdictions")
    )
    path = f"/v1/{kind.replace('_', '-')}/"
    if what < 0.45 and names.get(kind):
        return Change("DELETE", path + rng.choice(names[kind]), None, forced, approved)
    if what < 0.6 or not names.get(kind):
        made = {"regions": ELSEWHERE, "services": "free", "tenants": "mine", "jurisdictions": "OWN"}
        name = made.get(kind, "mine")
        like: dict[str, Any] = next(iter(base.get(kind, [])), {})
        new = _changed(rng, like, kind)
        if kind == "services" and rng.random() < 0.3:
            new |= {"hostnames": []}
        return Change("PUT", path + name, {**new, "name": name}, forced, approved)
    document = rng.choice(base[kind])
    return Change("PUT", path + document["name"], _changed(rng, document, kind), forced, approved)


class Control:
    """A control process with two persons' approvals, for one world after the other.

    Args:
        stack: what ends it.
        url: of a database that `prepare` has seen.
    """

    def __init__(self, stack: ExitStack, url: str) -> None:
        server = stack.enter_context(Server(url, fence_approvals=1))

        def client(role: Role) -> httpx.Client:
            headers = {"Authorization": f"Bearer {TOKENS[role]}"}
            return stack.enter_context(
                httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60)
            )

        self.operator, self.admin, self.second = map(client, (Role.OPERATOR, Role.ADMIN, Role.FENCE_ADMIN))
        self.number = 0

    def reset(self, setting: Setting) -> dict[str, Any]:
        """Both persons put the law in force as it was."""
        document = concise_policy(law(extra=setting.extra))
        for _ in range(3):
            done = self.second.post("/v1/policy:apply", json={"policy": document}, params=FORCED)
            if done.status_code == 200:
                return document
            named = {"sha256": done.json()["fingerprint"], "reason": "as it was"}
            assert self.admin.post("/v1/fence-approvals", json=named).status_code == 201, done.text
        raise AssertionError(done.text)

    def send(self, change: Change, *, admin: bool) -> int:
        """A change as the liar sends it; an admin that is refused for want of a second person approves with a token that it has just made."""
        client = self.admin if admin else self.operator

        def ask() -> httpx.Response:
            params = FORCED if change.forced else {}
            return client.request(change.method, change.path, json=change.body, params=params)

        answer = ask()
        if admin and change.approved and answer.status_code == 409 and answer.json().get("fingerprint"):
            self.number += 1
            body = {"name": f"own-{self.number}", "role": "fence-admin", "owner": "somebody-else"}
            made = client.post("/v1/tokens", json=body)
            assert made.status_code == 201, made.text
            named = {"sha256": answer.json()["fingerprint"], "reason": "mine"}
            own = {"Authorization": f"Bearer {made.json()['token']}"}
            assert client.post("/v1/fence-approvals", json=named, headers=own).status_code == 201
            client.post("/v1/fence-approvals", json=named)
            answer = ask()
        return answer.status_code

    def policy(self) -> Policy:
        """The policy in force."""
        return PolicyDocument.model_validate(self.second.get("/v1/policy").json()["policy"]).to_core()


@cache
def control() -> Control:
    """This process's, on a Postgres of its own."""
    stack = ExitStack()
    Finalize(None, stack.close, exitpriority=0)  # processes of a pool heed this alone, and `atexit` never
    place = Path(stack.enter_context(TemporaryDirectory(prefix="liars-")))
    postgres = stack.enter_context(EmbeddedPostgres(place, settings={"fsync": "off"}))
    migrate.upgrade(postgres.url)
    prepare(postgres.url)
    return Control(stack, postgres.url)


def outcome(policy: Policy, codes: Mapping[int, int]) -> Outcome:
    """What everybody gets by host name, with all regions up; and whether any region may answer that might not before."""
    view = worlds.view(policy, now=time(), shipped=shipped_jurisdictions())
    snapshot, router = view.snapshot, Router(view)
    answers: dict[tuple[str, str], Counter[str]] = {}
    outside = 0
    for name, fence in HOSTS.items():
        host = snapshot.host_of(name)
        for client, location in CLIENTS.items():
            found = answers[name, client] = Counter[str]()
            if host is None:
                found[""] += len(DRAWS)
                continue
            request = Request(snapshot.hostnames[host.name], location, host.tenant, host.data_class)
            routing = router.routing(request)
            for draw in DRAWS:
                found[routing.pick(draw).region or ""] += 1
            if location.country in ("DE", "FR") or name == "bank.demo.test":
                group = routing.ranking.group
                may = group.allowed & group.capable
                names = [region.name for number, region in enumerate(snapshot.regions) if may >> number & 1]
                outside += sum(one in REGIONS and one not in fence for one in names)
    return Outcome(answers, outside, codes)


class PersonArena(Arena[Setting, Lie, Outcome]):
    """One person who may change the policy, against everybody's clients.

    Args:
        admin: an admin, else an operator.
        here: the control process that it asks.
    """

    kinds: ClassVar[Mapping[str, str]] = {"c": "changes of policy"}

    def __init__(self, *, admin: bool, here: Callable[[], Control] = control) -> None:
        self.admin, self.here = admin, here
        self.principal = "one admin of two" if admin else "operator, where a second person approves"

    def setting(self, rng: random.Random) -> Setting:
        """A world."""
        return Setting(rng.random() < 0.5)

    def lie(self, rng: random.Random, setting: Setting, kinds: str) -> Lie:  # noqa: ARG002 - the contract
        """Some changes in a row."""
        base = concise_policy(law(extra=setting.extra))
        return Lie(*(draw_change(rng, base) for _ in range(rng.randint(1, STEPS))))

    def run(self, setting: Setting, lie: Lie | None) -> Outcome:
        """What everybody gets when all changes were sent."""
        codes = Counter[int]()
        if lie is None:
            return outcome(law(extra=setting.extra), codes)
        here = self.here()
        here.reset(setting)
        for change in lie.changes:
            codes[here.send(change, admin=self.admin)] += 1
        return outcome(here.policy(), codes)

    def damage(self, setting: Setting, honest: Outcome, lied: Outcome) -> Damage:  # noqa: ARG002 - the contract
        """Each host name's clients count alike."""
        whole = len(honest.answers) * len(DRAWS)
        changed = sum((before - lied.answers[key]).total() for key, before in honest.answers.items())
        refused = sum(max(0, lied.answers[key][""] - one[""]) for key, one in honest.answers.items())
        return Damage(lied.outside, refused / whole, 0.0, changed / whole)

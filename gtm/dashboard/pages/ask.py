"""Ask: which region serves a request, why, what the fence leaves, and what the client is sent. A form whose address is a link to share."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import Response

from gtm.client.objects import JsonObject
from gtm.core.model.services import Priority
from gtm.dashboard.inside import ApiProblem, Inside
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

MOST_NAMES = 1000
"""Names of a kind that are offered; any other can be written."""
STATED = ("service", "over", "host", "tenant", "data_class", "model", "affinity", "priority")
"""Fields that the API has by the same name."""
FIELDS = (*STATED, "from", "at")
_PLACES = frozenset({"client_ip", "city", "country", "lat", "lon"})
"""What the API calls what is written in `from`."""
_DEGREES = re.compile(r"\s*([+-]?\d{1,3}(?:\.\d+)?)\s*,\s*([+-]?\d{1,3}(?:\.\d+)?)\s*")
_ZONED = re.compile(r"(?:[Zz]|[+-]\d\d:?\d\d)$")
_EDGE = "http://127.0.0.1:8081"
_CONTROL = "http://127.0.0.1:8080"


@page("/ask")
async def _ask(visit: Visit) -> Response:
    """The form; where something is asked, with the answer."""
    asked = {name: visit.query(name) for name in FIELDS}
    names = await choices(visit.api)
    answer: types.ExplanationView | None = None
    found = Problems({}, [])
    status = 200
    if asked["service"] is not None:
        try:
            answer = await visit.api.explain_route(question(asked))
        except ApiProblem as problem:
            found, status = problems(problem), problem.status
    shown = None if answer is None else Shown(answer, names.regions, question(asked).get("at"))
    return visit.render(
        "ask.html",
        status,
        asked=asked,
        names=names,
        problems=found,
        answer=answer,
        shown=shown,
        kinds=KINDS,
        commands=[] if answer is None else commands(asked, answer),
    )


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What there is to choose from; `regions` are the API's, by name."""

    services: Sequence[str]
    tenants: Sequence[str]
    data_classes: Sequence[str]
    models: Sequence[str]
    regions: Mapping[str, types.RegionNamed]

    @property
    def priorities(self) -> list[str]:
        """All of them."""
        return [one.value for one in Priority]


async def choices(api: Inside) -> KnownNames:
    """What the policy in force knows."""
    found = await api.list_names(limit=MOST_NAMES)
    return KnownNames(
        found.services,
        found.tenants,
        found.data_classes,
        found.models,
        {one.name: one for one in found.regions},
    )


def question(asked: Mapping[str, str | None]) -> Any:
    """What is asked, as the API takes it."""
    body: dict[str, Any] = {name: asked[name] for name in STATED if asked[name] is not None}
    if (place := asked["from"]) is not None:
        body |= placed(place)
    if (at := asked["at"]) is not None:
        body["at"] = at if _ZONED.search(at) else f"{at}Z"
    return body


def placed(text: str) -> dict[str, Any]:
    """A place as people write it, as the field of the API that it looks like.

    >>> [placed(text) for text in ("192.0.2.1", "2001:db8::/32", "de", "52.5, 13.4", "New York")]
    [{'client_ip': '192.0.2.1'}, {'client_ip': '2001:db8::/32'}, {'country': 'DE'}, {'lat': 52.5, 'lon': 13.4}, {'city': 'New York'}]
    """
    if degrees := _DEGREES.fullmatch(text):
        return {"lat": float(degrees[1]), "lon": float(degrees[2])}
    if len(text) == 2 and text.isascii() and text.isalpha():
        return {"country": text.upper()}
    if text[0].isdigit() or ":" in text or "/" in text:
        return {"client_ip": text}
    return {"city": text}


@dataclass(frozen=True, slots=True)
class Problems:
    """What is wrong with a question: by field, and what is of none."""

    fields: Mapping[str, str]
    others: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.fields or self.others)


def problems(problem: ApiProblem) -> Problems:
    """What the API refused, said at the fields that it is about."""
    fields: dict[str, str] = {}
    others: list[str] = []
    for one in problem.document.get("errors") or []:
        name = "from" if one.path in _PLACES else one.path
        if name in FIELDS and name not in fields:
            fields[name] = one.message
        else:
            others.append(one.message)
    return Problems(fields, others if fields or others else [str(problem)])


KINDS = {
    "chosen": ("good", "✓", "chosen"),
    "inside": ("good", "●", "inside the fence"),
    "unusable": ("warn", "!", "inside, not usable now"),
    "outside": ("bad", "✕", "outside the fence"),
}
"""What a region is to the request → its class of colours, its sign and its words."""


class Shown:
    """An answer as the page has it.

    Args:
        answer: of `POST /v1/route:explain`.
        regions: all there are, by name.
        at: by the law of when; None: of now.
    """

    def __init__(
        self, answer: types.ExplanationView, regions: Mapping[str, types.RegionNamed], at: str | None = None
    ) -> None:
        self.at = at
        self._answer = answer
        basis = {rule.name: rule for rule in answer.rules}
        self.rows = [
            JsonObject(
                one,
                kind=_kind(one, answer.region),
                why=one.why.removeprefix(f"{one.region}: "),
                by=[basis[name] for name in one.rules],
            )
            for one in answer.candidates
        ]
        self.served = answer.outcome == "served"
        self.left = sum(one.kind != "outside" for one in self.rows)
        self.odds = sorted(
            ((one.region, one.share) for one in self.rows if one.share > 0),
            key=lambda one: -one[1],
        )
        self.enforced = [rule.name for rule in answer.rules if rule.mode == "enforce"]
        self._regions = regions

    @property
    def headline(self) -> str:
        """In one sentence, why it is served there, or refused."""
        region = self._answer.region
        first = next(
            (line for line in self._answer.lines if region is None or line.startswith(f"{region}: ")), ""
        )
        words = first.removeprefix(f"{region}: ")
        return f"{words[:1].upper()}{words[1:]}."

    @property
    def sheds(self) -> float:
        """The share that is refused for want of capacity: none over DNS."""
        return 0.0 if self._answer.over == "dns" else float(self._answer.shed)

    @property
    def location(self) -> JsonObject:
        """The location of the client that was asked for."""
        found: JsonObject = self._answer.request.location
        return found

    def excluded_by(self, rule: str) -> list[str]:
        """The regions that a rule leaves out, or would in monitor mode."""
        return [one.region for one in self.rows if rule in (*one.rules, *one.monitored)]

    @property
    def scene(self) -> dict[str, Any]:
        """The scene that the map draws."""
        mine = {one.region: one for one in self.rows}
        location = self.location
        located = location.lat is not None and location.lon is not None
        return {
            "client": [location.lat, location.lon] if located else None,
            "regions": [
                {"name": name, "lat": one.lat, "lon": one.lon, **_drawn(mine.get(name))}
                for name, one in self._regions.items()
            ],
        }


def _kind(candidate: JsonObject, chosen: str | None) -> str:
    if candidate.region == chosen:
        return "chosen"
    if candidate.excluded == "residency":
        return "outside"
    return "inside" if candidate.excluded is None else "unusable"


def _drawn(row: JsonObject | None) -> dict[str, Any]:
    """How the map draws a region; None: it is none of the service's."""
    if row is None:
        return {"kind": "other", "sign": "", "share": 0, "words": "not a region of this service"}
    _, sign, words = KINDS[row.kind]
    return {
        "kind": row.kind,
        "sign": "" if sign == "●" else sign,
        "share": row.share,
        "words": f"{words}, {row.share:.0%} of such requests",
    }


def commands(asked: Mapping[str, str | None], answer: types.ExplanationView) -> list[str]:
    """What asks the same without a browser, the edge first where it can be asked."""
    body = question(asked)
    found = []
    if answer.dns is not None:
        found += _dns_commands(answer.dns)
    elif "client_ip" in body and "/" not in body["client_ip"]:
        found += _edge_commands(body)
    document = shlex.quote(json.dumps(body, ensure_ascii=False))
    found.append(
        f'curl -s {_CONTROL}/v1/route:explain -H "Authorization: Bearer $GTM_TOKEN" '
        f"-H 'Content-Type: application/json' -d {document}"
    )
    return found


def _dns_commands(told: JsonObject) -> list[str]:
    subnet = told.client_subnet
    name = shlex.quote(told.name)
    stating = f" --subnet {shlex.quote(subnet)}" if subnet else ""
    dug = f" +subnet={shlex.quote(subnet)}" if subnet else ""
    return [f"gtm dns query {name}{stating}", f"dig @127.0.0.1 -p 5353 {name} A{dug}"]


def _edge_commands(body: Mapping[str, Any]) -> list[str]:
    """`gtm explain` asks the edge, or control if it is about another time; it states no priority."""
    options = (
        ("client_ip", "--client"),
        ("tenant", "--tenant"),
        ("data_class", "--data-class"),
        ("model", "--model"),
        ("affinity", "--affinity"),
        ("host", "--host"),
        ("at", "--at"),
    )
    found = []
    if "priority" not in body and not ("host" in body and "at" in body):
        said = "".join(f" {option} {shlex.quote(body[name])}" for name, option in options if name in body)
        found.append(f"gtm explain {shlex.quote(body['service'])}{said}")
    if "at" not in body:
        query = urlencode({name: value for name, value in body.items() if name != "over"} | {"explain": "1"})
        found.append(f"curl -s {shlex.quote(f'{_EDGE}/v1/route?{query}')}")
    return found

"""Random policies in which every field of every kind is used, with names and texts as odd as documents allow; all compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from gtm.core.model.problems import PolicyError
from gtm.core.policy.compile import compile_policy
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.schema import PolicyDocument

Document = dict[str, Any]

COUNTRIES = ("DE", "FR", "NO", "GB", "US", "SG")
SHIPPED = ("EU", "EEA", "UK", "GDPR-ADEQUATE")
ZONES = ("a.test", "b.a.test", "c.b.a.test", "c-d.test", "c.d.test", "d.test", "3.test", "xn--nxasmq6b.test")
MODELS = ("small", "org/large:7b@v2", "0")
REGEXES = ('"ok":\\s*true', "^\\$\\{x\\}$", "%{", "é|e\u0301", "a\tb")
V4, V6 = "192.0.2.9", "2001:db8::9"

_CHARACTERS = st.one_of(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), st.sampled_from('${%{"\\~}#/e\u0301')
)
lines = st.text(_CHARACTERS, max_size=12)
texts = st.text(st.one_of(_CHARACTERS, st.sampled_from("\n\t")), max_size=16)
names = st.one_of(
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,4}[a-z0-9])?", fullmatch=True),
    st.sampled_from(
        ["true", "null", "for", "if", "each", "self", "count", "3com", "a-b", "a--b", "name", "r" * 63]
    ),
)
_odd = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,4}[A-Za-z0-9]", fullmatch=True)
moments = st.sampled_from(
    [
        "2026-01-01T00:00:00Z",
        "2026-06-30T23:59:59.123456Z",
        "2027-02-28T01:02:03+05:30",
        "1999-12-31T00:00:00Z",
    ]
)


def _number(least: float, most: float) -> st.SearchStrategy[float]:
    return st.one_of(st.floats(least, most), st.integers(int(least), int(most)))


def _some(values: Sequence[str], least: int = 0, most: int = 3) -> st.SearchStrategy[list[str]]:
    if not values:
        return st.just([])
    return st.lists(st.sampled_from(values), unique=True, min_size=least, max_size=most)


def _fields(always: Mapping[str, Any], **sometimes: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({key: st.just(value) for key, value in always.items()}, optional=sometimes)


_capacity = _fields({}, outstanding=st.integers(0, 10**9), requests_per_second=_number(0, 1e9))


@st.composite
def _regions(draw: st.DrawFn, name: str) -> Document:
    endpoints = [
        draw(
            _fields(
                {
                    "url": f"https://{index}.{name}.test{draw(st.sampled_from(['', '/a%20b/c']))}",
                    "ipv4": [V4],
                },
                ipv6=st.sampled_from([[V6], [V6, "2001:db8::1"]]),
                cname=st.just("edge.example.net"),
            )
        )
        for index in range(draw(st.integers(1, 2)))
    ]
    always = {
        "name": name,
        "lat": draw(_number(-90, 90)),
        "lon": draw(_number(-180, 180)),
        "country": draw(st.sampled_from(COUNTRIES)),
        "endpoints": endpoints,
    }
    return draw(
        _fields(
            always,
            display_name=lines,
            subdivision=st.sampled_from(["US-CA", "BY"]),
            operator_country=st.sampled_from(COUNTRIES),
            models=_some(MODELS),
            capacity=_capacity,
            reserve=_number(0, 0.95),
            spill_in=_fields({}, max_share=_number(0, 1), max_requests_per_second=_number(0, 1e9)),
            slow_start=_number(0, 3600),
            cost_weight=_number(0, 1e6),
            drain_deadline=_number(0, 86_400),
            probe=_probes(),
        )
    )


@st.composite
def _probes(draw: st.DrawFn) -> Document:
    always: Document = {}
    if draw(st.booleans()):
        value = st.one_of(
            st.booleans(),
            st.integers(-(2**53), 2**53),
            st.floats(allow_nan=False, allow_infinity=False),
            lines,
        )
        always = {"json_field": "status.model_loaded", "json_value": draw(value)}
    return draw(
        _fields(
            always,
            type=st.sampled_from(["http", "https"]),
            port=st.integers(1, 65535),
            path=st.sampled_from(["/", "/ready?x=${y}&z=%{w}", '/"\\']),
            host=st.just("probe.example.net"),
            expected_status=st.sampled_from([[204, 200], [200], [503]]),
            body_regex=st.sampled_from(REGEXES),
            interval=_number(4, 3600),
            timeout=st.floats(0.1, 3),
            up_threshold=st.integers(1, 100),
            down_threshold=st.integers(1, 100),
            verify_tls=st.booleans(),
            addresses=st.booleans(),
        )
    )


@st.composite
def _services(
    draw: st.DrawFn,
    name: str,
    regions: Sequence[Document],
    zones: Sequence[str],
    known: Mapping[str, list[str]],
) -> Document:
    chosen = draw(st.lists(st.sampled_from(regions), unique_by=lambda one: one["name"], min_size=1))
    members = [
        {"region": one["name"], **draw(_fields({}, weight=_number(0, 1e6), capacity=_capacity))}
        for one in chosen
    ]
    if len(members) > 1 and draw(st.booleans()):
        members[-1] = {
            "region": members[-1]["region"],
            "share": draw(st.floats(0, 1, exclude_min=True, exclude_max=True)),
        }
    always: Document = {"name": name, "members": members}
    if zones and draw(st.integers(0, 3)) > 0:
        zone = draw(st.sampled_from(zones))
        hosts = [f"s.{name}.{zone}", *draw(_some([f"*.{name}.{zone}", f"2.{name}.{zone}"]))]
        states = {
            key: st.sampled_from(known[kind])
            for key, kind in (("tenant", "tenants"), ("data_class", "data_classes"))
            if known[kind]
        }
        always |= {"zone": zone, "refusal": {"ipv4": [V4], "ipv6": [V6]}}
        always["hostnames"] = [
            draw(st.one_of(st.just(host), _fields({"name": host}, **states))) for host in hosts
        ]
    served = sorted({model for one in chosen for model in one.get("models", ())})
    other: dict[str, st.SearchStrategy[Any]] = {"model": st.sampled_from(served)} if served else {}
    if "zone" in always:
        other["https_record"] = st.sampled_from([{}, {"alpn": ["h3", "h2"]}, {"alpn": []}])
    return draw(
        _fields(
            always,
            display_name=lines,
            ttl=st.integers(1, 86400),
            min_ttl=st.integers(1, 86400),
            families=st.sampled_from(["together", "separate"]),
            max_answers=st.integers(1, 100),
            steering=st.sampled_from(["latency", "geo", "weighted", "failover"]),
            affinity=st.sampled_from(["none", "client_network", "key"]),
            on_unusable=st.sampled_from(["refuse", "ignore_health"]),
            on_overload=st.sampled_from(["shed", "queue"]),
            priority=st.sampled_from(["real_time", "near_real_time", "batch"]),
            service_time_ms=st.floats(0, 3_600_000, exclude_min=True),
            exploration=_number(0, 0.2),
            handoff=st.sampled_from(["none", "sign"]),
            push=st.sampled_from(["carry", "redirect", "never"]),
            cors=st.sampled_from(
                [
                    {"origins": ["*"]},
                    {"origins": ["https://app.example.com", "http://a.test:8080"], "credentials": True},
                    {"origins": ["*"], "methods": ["POST"], "fields": ["authorization", "content-type"]},
                ]
            ),
            **other,
        )
    )


@st.composite
def _zones(draw: st.DrawFn, name: str, zones: Mapping[str, bool], hosts: Sequence[str]) -> Document:
    """A zone; `zones` says of each whether it has the address of a name server among its records."""
    given = {"ipv4": [V4], "ipv6": [V6]}
    servers: list[Document] = [
        {"name": f"ns1.{name}", **given},
        {"name": "ns.example.net"},
        *({"name": f"ns2.{other}", **given} for other in zones),
        *({"name": f"glue.{other}"} for other, glue in zones.items() if glue),
        *({"name": host} for host in hosts if "*" not in host),
    ]
    records: list[Document] = [
        {"name": "www", "type": "TXT", "data": ['"v=spf1 ${x} %{y}; -all"', "a"]},
        {"name": "@", "type": "MX", "data": ["10 mail.example.com.", "20 www"], "ttl": 300},
        {"name": "lab", "type": "NS", "data": ["ns1.lab"]},
        {"name": "ns1.lab", "type": "A", "data": ["192.0.2.54"]},
        {"name": "_x._tcp", "type": "TYPE65280", "data": ["\\# 3 0a0b0c"]},
        *(
            {"name": f"{other}.", "type": "DS", "data": [f"1 13 2 {'ab' * 32}"]}
            for other in zones
            if other.partition(".")[2] == name
        ),
    ]
    chosen = [one for one in records if draw(st.booleans())]
    kinds = {one["type"] for one in chosen}
    if "A" in kinds and "NS" not in kinds:
        chosen = []
    if zones[name]:
        chosen.append({"name": "glue", "type": "A", "data": [V4]})
    always = {
        "name": name,
        "primary_ns": f"ns1.{name}",
        "hostmaster": "hostmaster.example.com",
        "records": chosen,
    }
    seconds = st.integers(1, 2**31 - 1)
    one = _fields({}, country=st.sampled_from(COUNTRIES), operator_country=st.sampled_from(COUNTRIES))
    picked = draw(st.lists(st.sampled_from(servers), unique_by=lambda each: each["name"], max_size=3))
    always["name_servers"] = [{**each, **draw(one)} for each in picked]
    return draw(
        _fields(
            always,
            ttl=st.integers(1, 86400),
            refresh=seconds,
            retry=seconds,
            expire=seconds,
            minimum=st.integers(1, 86400),
            dnssec=st.booleans(),
            explanations=st.booleans(),
        )
    )


@st.composite
def _rules(draw: st.DrawFn, name: str, known: Mapping[str, list[str]]) -> Document:
    places = [*known["jurisdictions"], *SHIPPED, *COUNTRIES]
    dealt = draw(
        st.lists(st.sampled_from(sorted({*places, *known["regions"]})), unique=True, min_size=2, max_size=5)
    )
    run = draw(_some(places))
    allow, deny = (
        {
            "jurisdictions": [one for one in side if one in places],
            "regions": [one for one in side if one not in places],
            "operator_jurisdictions": by,
        }
        for side, by in ((dealt[::2], run[::2]), (dealt[1::2], run[1::2]))
    )
    match = _fields(
        {},
        services=_some(known["services"]),
        client_countries=_some(COUNTRIES),
        client_jurisdictions=_some(places),
        tenants=_some(known["tenants"]),
        tenant_jurisdictions=_some(places),
        data_classes=_some(known["data_classes"]),
    )
    return draw(
        _fields(
            {"name": name, "allow": allow, "acknowledge_empty_fence": True},
            match=match,
            deny=st.just(deny),
            mode=st.sampled_from(["enforce", "monitor"]),
            edges=st.sampled_from(["anywhere", "in_fence"]),
            on_unknown_location=st.sampled_from(["match", "ignore"]),
            on_anonymous=st.sampled_from(["match", "trust"]),
            on_doubtful_location=st.sampled_from(["match", "trust"]),
            max_accuracy_km=_number(0, 20_040),
            legal_basis=texts,
            effective_from=st.just("1999-12-31T00:00:00.000001Z"),
            effective_until=moments.filter(lambda one: not one.startswith("1999")),
            max_policy_age=_number(1, 31_536_000),
        )
    )


@st.composite
def _jurisdictions(draw: st.DrawFn, taken: Sequence[str]) -> list[Document]:
    """Bodies of law of which each may hold those before it, in any order."""
    made: list[Document] = []
    for name in taken:
        members = draw(_some([*COUNTRIES, *SHIPPED, *(one["name"] for one in made)], 1))
        terms = [
            draw(_fields({"member": one, "effective_until": "2030-01-01T00:00:00Z"}, effective_from=moments))
            for one in members[:1]
        ]
        made.append(
            draw(
                _fields(
                    {"name": name, "members": members}, display_name=lines, source=texts, terms=st.just(terms)
                )
            )
        )
    return draw(st.permutations(made))


def _unique(count: int, least: int = 0) -> st.SearchStrategy[list[str]]:
    return st.lists(names, unique=True, min_size=least, max_size=count)


@st.composite
def documents(draw: st.DrawFn) -> PolicyDocument:
    """A policy that compiles with the jurisdictions that come with gtm."""
    known = {
        "regions": draw(_unique(4, 2)),
        "services": draw(_unique(3, 1)),
        "tenants": draw(_unique(3)),
        "data_classes": draw(_unique(3)),
        "jurisdictions": draw(st.lists(_odd.filter(lambda one: len(one) > 2), unique=True, max_size=3)),
    }
    zones = draw(st.lists(st.sampled_from(ZONES), unique=True, max_size=4))
    regions = [draw(_regions(name)) for name in known["regions"]]
    services = [draw(_services(name, regions, zones, known)) for name in known["services"]]
    hosts = [
        one if isinstance(one, str) else one["name"]
        for service in services
        for one in service.get("hostnames", ())
    ]
    glue = {zone: draw(st.booleans()) for zone in zones}
    spill = draw(_unique(2))
    return compiling(
        {
            "regions": regions,
            "zones": [draw(_zones(zone, glue, hosts)) for zone in zones],
            "services": services,
            "residency_rules": [draw(_rules(name, known)) for name in draw(_unique(3, 1))],
            "spillover_rules": [draw(_spills(name, known["regions"])) for name in spill],
            "jurisdictions": draw(_jurisdictions(known["jurisdictions"])),
            "tenants": [
                draw(
                    _fields(
                        {"name": name},
                        display_name=lines,
                        weight=st.floats(0, 1e6, exclude_min=True),
                        country=st.sampled_from(COUNTRIES),
                    )
                )
                for name in known["tenants"]
            ],
            "data_classes": [
                draw(_fields({"name": name}, display_name=lines)) for name in known["data_classes"]
            ],
        }
    )


@st.composite
def _spills(draw: st.DrawFn, name: str, regions: Sequence[str]) -> Document:
    first, *others = draw(st.permutations(regions))
    return draw(
        _fields(
            {"name": name, "from_region": first, "to_regions": draw(_some(others, 1))},
            max_share=_number(0, 1),
            max_requests_per_second=_number(0, 1e9),
            max_added_latency_ms=_number(0, 60_000),
        )
    )


def compiling(document: Document) -> PolicyDocument:
    """The policy of a document, which hypothesis gives up if it does not compile."""
    policy = PolicyDocument.model_validate(document)
    try:
        compile_policy(policy.to_core(), shipped_jurisdictions())
    except PolicyError:
        assume(False)
    return policy

"""The questions of the corpus: drawn from a seed, by nothing of gtm's, so that no change of gtm changes them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote

import dns.edns
import dns.flags
import dns.message
import dns.name

SERVICES = [
    "free",
    "gdpr",
    "tenants",
    "weights",
    "sticky",
    "keyed",
    "order",
    "canary",
    "explore",
    "model",
    "stubborn",
    "few",
    "tls",
    "wild",
    "apex",
    "batch",
    "young",
    "guarded",
    "nowhere",
    "nameless",
]
HOSTS = [f"{name}.w.test" for name in SERVICES if name not in ("wild", "apex", "nameless")] + [
    *("bank.w.test", "clinic.w.test", "apex.test", "own.wild.w.test", "x.wild.w.test", "Y.z.WILD.w.test"),
]
STATIC = [
    "w.test",
    "www.w.test",
    "mail.w.test",
    "txt.w.test",
    "to-www.w.test",
    "to-free.w.test",
    "x.any.w.test",
    "any.w.test",
    "ent.w.test",
    "a.ent.w.test",
    "lab.w.test",
    "x.lab.w.test",
    "ns1.lab.w.test",
    "big.w.test",
    "nothing.w.test",
    "ns1.w.test",
    "example.org",
    "version.bind",
    ".",
]
TYPES = ("A", "A", "A", "AAAA", "AAAA", "HTTPS", "TXT", "SOA", "NS", "MX", "ANY", "CNAME", "TYPE65280")
TENANTS = ("bank", "clinic", "shop", "unknown")
TOKENS = ("viewer", "admin", "reporter", "old")
"""Names of tokens in `answers`."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A DNS packet and who sent it. `draw` is uniform in [0, 1)."""

    wire: bytes
    client: str
    tcp: bool
    draw: float


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP request as an ASGI server would hand it over. `seed` is for what is drawn while it is answered."""

    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    peer: str
    seed: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """What control is asked to explain."""

    request: dict[str, str]


Question = Packet | Call | Explanation


def questions(seed: int, count: int) -> Iterator[Question]:
    """So many questions: of ten, six are DNS packets, two look-ups, one a redirect; of the rest half are batches."""
    generator = random.Random(seed)
    draw = _Draw(generator)
    makers = [draw.packet] * 12 + [draw.lookup] * 4 + [draw.redirect] * 2 + [draw.batch, draw.explanation]
    for number in range(count):
        yield makers[number % len(makers)]()


class _Draw:
    """Draws single questions."""

    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self._known = [self._fresh() for _ in range(400)]

    def _fresh(self) -> str:
        if self.random.random() < 0.2:
            top = self.random.choice((0x2001, 0x2400, 0x2600, 0x2A02, 0x2804)) << 112
            return str(IPv6Address(top | self.random.getrandbits(108)))
        return str(IPv4Address(self.random.randrange(1 << 24, 224 << 24)))

    def address(self) -> str:
        """An address: one met before, or anybody's."""
        return self.random.choice(self._known) if self.random.random() < 0.7 else self._fresh()

    def packet(self) -> Packet:
        """A DNS packet, damaged now and then."""
        draw = self.random
        name = draw.choice(HOSTS) if draw.random() < 0.8 else draw.choice(STATIC)
        if draw.random() < 0.1:
            name = "".join(draw.choice((letter.upper(), letter)) for letter in name)
        options: list[dns.edns.Option] = []
        if draw.random() < 0.6:
            options.append(self._subnet())
        if draw.random() < 0.05:
            options.append(
                dns.edns.GenericOption(draw.choice((3, 10, 12, 65001)), draw.randbytes(draw.randrange(9)))
            )
        edns = bool(options) or draw.random() < 0.2
        message = dns.message.make_query(
            name,
            draw.choice(TYPES),
            "CH" if name == "version.bind" else "IN",
            use_edns=0 if edns else None,
            want_dnssec=edns and draw.random() < 0.2,
            options=options or None,
            payload=draw.choice((512, 1232, 4096)) if edns else None,
            id=draw.getrandbits(16),
        )
        if draw.random() < 0.3:
            message.flags &= ~dns.flags.RD
        wire = bytearray(message.to_wire())
        if draw.random() < 0.04:
            for _ in range(draw.randrange(1, 4)):
                wire[draw.randrange(len(wire))] = draw.getrandbits(8)
            del wire[draw.choice((len(wire), len(wire), draw.randrange(len(wire)))) :]
        return Packet(bytes(wire), self.address(), draw.random() < 0.1, draw.random())

    def _subnet(self) -> dns.edns.ECSOption:
        address = self.address()
        widths = (
            (0, 8, 16, 20, 24, 24, 24, 24, 28, 32)
            if ":" not in address
            else (0, 20, 32, 48, 48, 56, 56, 64, 128)
        )
        return dns.edns.ECSOption(address, self.random.choice(widths))

    def _asked(self) -> dict[str, str]:
        draw = self.random
        asked = {"service": draw.choice(SERVICES), "client_ip": self.address()}
        more = {
            "tenant": (0.3, TENANTS),
            "data_class": (0.15, ("health", "public")),
            "affinity": (0.2, [f"key-{number}" for number in range(50)]),
            "priority": (0.1, ("real_time", "batch")),
            "model": (0.1, ("large", "small")),
        }
        for name, (odds, values) in more.items():
            if draw.random() < odds:
                asked[name] = draw.choice(values)
        if draw.random() < 0.1:
            asked["host"] = draw.choice(HOSTS)
            if draw.random() < 0.7:
                del asked["service"]
        if draw.random() < 0.2:
            del asked["client_ip"]
        return asked

    def _wrong(self, asked: dict[str, str]) -> dict[str, str]:
        name, value = self.random.choice(
            (("servic", "free"), ("service", "nope"), ("tenant", "nobody"), ("data_class", "x"), ("model", "none"),
             ("client_ip", "1.2.3"), ("affinity", ""), ("priority", "urgent"), ("explain", "maybe"), ("host", "x.y"))
        )  # fmt: skip
        return {**asked, name: value}

    def lookup(self) -> Call:
        """`GET /v1/route`."""
        draw = self.random
        asked = self._asked()
        if draw.random() < 0.3:
            asked["explain"] = "1"
        if draw.random() < 0.06:
            asked = self._wrong(asked)
        query = "&".join(f"{name}={quote(value)}" for name, value in asked.items())
        path = draw.choice(
            (b"/v1/route",) * 30 + (b"/readyz", b"/v1/beacon-targets", b"/healthz", b"/nowhere")
        )
        return self._call("GET", path, query.encode())

    def redirect(self) -> Call:
        """A request of a service's own, by host name or by path."""
        draw = self.random
        said = {
            b"x-gtm-tenant": (0.3, TENANTS),
            b"x-gtm-data-class": (0.15, ("health", "public")),
            b"x-gtm-model": (0.1, ("large", "small", "none")),
            b"x-gtm-affinity": (0.2, [f"key-{number}" for number in range(50)]),
            b"x-gtm-priority": (0.1, ("real_time", "batch", "soon")),
        }
        headers = tuple(
            (name, draw.choice(values).encode())
            for name, (odds, values) in said.items()
            if draw.random() < odds
        )
        rest = draw.choice((b"/", b"/a/b", b"/a%20b/..", b"//evil.test", b"/%zz", b"/v1/route"))
        query = draw.choice((b"", b"x=1", b"u=http://a/?b", b"x=%0d%0a"))
        if draw.random() < 0.5:
            return self._call(
                "POST", rest, query, (*headers, (b"host", draw.choice(HOSTS).encode() + b":80"))
            )
        name = draw.choice((*SERVICES, "nope")).encode()
        return self._call("GET", b"/r/" + name + rest, query, headers)

    def batch(self) -> Call:
        """`POST /v1/route:batch`."""
        draw = self.random
        items = [
            self._wrong(asked) if draw.random() < 0.05 else asked
            for asked in (self._asked() for _ in range(draw.randrange(1, 5)))
        ]
        body = json.dumps({"requests": items}).encode()
        return self._call("POST", b"/v1/route:batch", b"", ((b"content-type", b"application/json"),), body)

    def _call(
        self,
        method: str,
        path: bytes,
        query: bytes,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        body: bytes = b"",
    ) -> Call:
        draw = self.random
        if draw.random() < 0.9:
            headers = (*headers, (b"authorization", b"Bearer gtm_" + draw.choice(TOKENS).encode()))
        if draw.random() < 0.3:
            headers = (*headers, (b"x-forwarded-for", self.address().encode()))
        peer = "10.9.8.7" if draw.random() < 0.3 else self.address()
        return Call(method, path, query, headers, body, peer, draw.getrandbits(32))

    def explanation(self) -> Explanation:
        """What `gtm explain` asks control."""
        asked = self._asked()
        asked.pop("host", None)
        return Explanation({"service": "free", **asked})

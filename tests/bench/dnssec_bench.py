"""What signing answers costs: `python tests/bench/dnssec_bench.py [--names 10000] [--json]`.

CPU time in this process, without sockets: a signature by itself; answers made the full way (the first time that each is asked for,
and again), the short way, and from the memory of whole queries, without DO and with it; and the time and memory that signatures of many names take, each
with one address set in each of three regions. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.zone.dnssec import LIMIT, Signatures, ZoneKey, ZoneSigner
from gtm.dns.zone.zones import wire_name
from tests.dns.world import query
from tests.dns.zone.signing import KEYS, NOW, signing, zone_keys

REGIONS = 3
CLIENT = "10.2.0.1"
QUESTIONS = {
    "address": ("chat.demo.test", "A"),
    "no_data": ("chat.demo.test", "MX"),
    "no_name": ("nope.demo.test", "A"),
    "alias": ("to-to-www.demo.test", "A"),
}


class Unsigned(ZoneKey):
    """A key that makes bytes as long as signatures at no cost, to measure what remembering them takes."""

    def sign(self, digest: bytes) -> bytes:
        """The digest, twice."""
        return digest + digest


def best(works: Sequence[Callable[[], object]], count: int, rounds: int = 7) -> list[float]:
    """Microseconds of CPU that a call of each takes, in the best of some rounds in turn."""
    least = [float("inf")] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            begin = time.process_time()
            for _ in range(count):
                work()
            least[number] = min(least[number], time.process_time() - begin)
    return [1e6 * seconds / count for seconds in least]


def answers(server: Answerer, name: str, rdtype: str, way: str) -> tuple[float, float]:
    """Microseconds that a warm answer takes, plain and signed."""

    def answer(packet: bytes) -> bytes | None:
        if way == "full":
            return server.answer_fully(packet, CLIENT, tcp=False, draw=0.5)
        return (
            server.answer(packet, CLIENT, tcp=False, draw=0.5)
            if way == "short"
            else server.udp(packet, CLIENT)
        )

    packets = [query(name, rdtype, edns=True, want_dnssec=dnssec_ok) for dnssec_ok in (False, True)]
    for packet in packets:
        answer(packet)
    plain, signed = best([partial(answer, packet) for packet in packets], 500 if way == "full" else 20_000)
    return plain, signed


def sizes(server: Answerer, name: str, rdtype: str) -> tuple[int, int]:
    """Octets of an answer without DO, and with it."""
    packets = [query(name, rdtype, edns=True, want_dnssec=dnssec_ok) for dnssec_ok in (False, True)]
    plain, signed = (len(server.answer(packet, CLIENT, tcp=True, draw=0.5) or b"") for packet in packets)
    return plain, signed


def store(names: int) -> tuple[float, float]:
    """Signatures a second when none is known yet, and bytes of memory that each takes."""
    key = ZoneKey(zone_keys("demo.test"), Signatures())
    owners = [wire_name(f"name-{number}.demo.test") for number in range(names)]
    sets = [[bytes((192, 0, 2, region))] for region in range(REGIONS)]
    begin = time.process_time()
    for owner in owners:
        for rdatas in sets:
            key.rrsig(owner, wire.A, 30, rdatas, 1)
    rate = names * REGIONS / (time.process_time() - begin)
    made = Signatures()
    key = Unsigned(KEYS.zones[0], made)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for owner in owners:
        for rdatas in sets:
            key.rrsig(owner, wire.A, 30, rdatas, 1)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return rate, used / len(made)


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=10_000, help=f"at most {LIMIT // REGIONS}")
    parser.add_argument("--json", action="store_true", help="print the last line only")
    options = parser.parse_args()
    server = signing(signer=ZoneSigner(KEYS, lambda: NOW))
    key = ZoneKey(KEYS.zones[0], Signatures())
    digest = bytes(range(32))
    result: dict[str, object] = {"sign_us": round(best([partial(key.sign, digest)], 2000)[0], 1)}
    rows = [(title, *question, "full") for title, question in QUESTIONS.items()]
    rows += [(way, *QUESTIONS["address"], way) for way in ("short", "remembered")]
    for title, name, rdtype, way in rows:
        plain, signed = answers(server, name, rdtype, way)
        result[title] = {
            "plain_us": round(plain, 2),
            "signed_us": round(signed, 2),
            "ratio": round(signed / plain, 2),
            "octets": sizes(server, name, rdtype),
        }
    rate, size = store(min(options.names, LIMIT // REGIONS))
    result |= {"cold_per_second": round(rate), "bytes_per_signature": round(size)}
    result["memory_mb"] = round(size * min(options.names, LIMIT // REGIONS) * REGIONS / 1e6, 1)
    if not options.json:
        print(f"a signature: {result['sign_us']} µs; {result['cold_per_second']} new record sets a second")
        print(f"{'':<12}{'plain':>10}{'signed':>10}{'ratio':>8}  octets")
        for title, *_ in rows:
            row = result[title]
            assert isinstance(row, dict)
            print(
                f"{title:<12}{row['plain_us']:>7.1f} µs{row['signed_us']:>7.1f} µs{row['ratio']:>8}"
                f"  {row['octets'][0]} → {row['octets'][1]}"
            )
        print(
            f"{options.names} names × {REGIONS} regions: {result['memory_mb']} MB, "
            f"{result['bytes_per_signature']} bytes a signature"
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()

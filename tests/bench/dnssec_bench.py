"""What signing answers costs: `python tests/bench/dnssec_bench.py [--names 10000] [--json]`.

In this process, without sockets: a signature by itself; answers made the full way (the first time that each is asked for,
and again) and the short way, without DO and with it; and the time and memory that signatures of many names take, each
with one address set in each of three regions. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gtm.dns import wire
from gtm.dns.answer import Answerer
from gtm.dns.dnssec import Signer
from gtm.dns.signatures import LIMIT, Signatures, ZoneKey
from gtm.dns.zones import wire_name
from tests.dns.signing import KEYS, NOW, signing, zone_keys
from tests.dns.world import query

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


def best(work: Callable[[], object], count: int, rounds: int = 5) -> float:
    """Microseconds that a call takes, in the best of some rounds."""
    least = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            work()
        least = min(least, time.perf_counter() - begin)
    return 1e6 * least / count


def answers(server: Answerer, name: str, rdtype: str, *, dnssec_ok: bool, fully: bool) -> float:
    """Microseconds that a warm answer takes."""
    packet = query(name, rdtype, edns=True, want_dnssec=dnssec_ok)
    way = server.answer_fully if fully else server.answer
    way(packet, CLIENT, tcp=False, draw=0.5)
    return best(lambda: way(packet, CLIENT, tcp=False, draw=0.5), 500 if fully else 20_000)


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
    begin = time.perf_counter()
    for owner in owners:
        for rdatas in sets:
            key.rrsig(owner, wire.A, 30, rdatas, 1)
    rate = names * REGIONS / (time.perf_counter() - begin)
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
    server = signing(signer=Signer(KEYS, lambda: NOW))
    key = ZoneKey(KEYS.zones[0], Signatures())
    digest = bytes(range(32))
    result: dict[str, object] = {"sign_us": round(best(lambda: key.sign(digest), 2000), 1)}
    for title, (name, rdtype) in QUESTIONS.items():
        plain, signed = (
            answers(server, name, rdtype, dnssec_ok=dnssec_ok, fully=True) for dnssec_ok in (False, True)
        )
        result[title] = {
            "plain_us": round(plain, 1),
            "signed_us": round(signed, 1),
            "ratio": round(signed / plain, 2),
            "octets": sizes(server, name, rdtype),
        }
    plain, signed = (
        answers(server, *QUESTIONS["address"], dnssec_ok=dnssec_ok, fully=False)
        for dnssec_ok in (False, True)
    )
    result["short"] = {
        "plain_us": round(plain, 2),
        "signed_us": round(signed, 2),
        "ratio": round(signed / plain, 2),
    }
    rate, size = store(min(options.names, LIMIT // REGIONS))
    result |= {"cold_per_second": round(rate), "bytes_per_signature": round(size)}
    result["memory_mb"] = round(size * min(options.names, LIMIT // REGIONS) * REGIONS / 1e6, 1)
    if not options.json:
        print(f"a signature: {result['sign_us']} µs; {result['cold_per_second']} new record sets a second")
        print(f"{'full way':<10}{'plain':>10}{'signed':>10}{'ratio':>8}  octets")
        for title in QUESTIONS:
            row = result[title]
            assert isinstance(row, dict)
            print(
                f"{title:<10}{row['plain_us']:>8} µs{row['signed_us']:>7} µs{row['ratio']:>8}"
                f"  {row['octets'][0]} → {row['octets'][1]}"
            )
        print(f"short way {plain:>8.2f} µs{signed:>7.2f} µs{signed / plain:>8.2f}")
        print(
            f"{options.names} names × {REGIONS} regions: {result['memory_mb']} MB, "
            f"{result['bytes_per_signature']} bytes a signature"
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()

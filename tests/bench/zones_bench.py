"""What large zones cost: `python tests/bench/zones_bench.py [--records 10000] [--services 1000]`.

A zone of so many record sets (half of them of two MX records), and services with a host name and a wildcard each. Prints
seconds of CPU time to check the documents, to compile the policy, to make the names of an edge from it and to look for findings; µs
for the first and the next answer of a record, and to find the service of a Host header, by name and by wildcard. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import process_time

import msgspec

from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import Member, RecordSet, RefusalAddress, Service, Zone
from gtm.core.policy.compile import compile_policy
from gtm.dns.protocol import wire
from gtm.dns.zone.findings import zone_findings
from gtm.dns.zone.leads import ZoneLeads
from gtm.dns.zone.static import static_content
from gtm.dns.zone.zones import build_names, wire_name
from gtm.documents.schema import PolicyDocument


def policy(records: int, services: int) -> Policy:
    """A zone of so many record sets, and so many services in it."""
    sets = [
        RecordSet(f"host-{number}", "A", (f"192.0.2.{number % 250}",))
        if number % 2
        else RecordSet(f"host-{number}", "MX", ("10 mail", "20 mail.example.net."))
        for number in range(records)
    ]
    refusal = RefusalAddress(("192.0.2.9",))
    return Policy(
        regions=(Region("de", 50.0, 8.0, "DE", (Endpoint("https://de.test", ("192.0.2.1",)),)),),
        zones=(Zone("x.test", "ns.example.net", "h.example.net", records=tuple(sets)),),
        services=tuple(
            Service(
                f"service-{number}",
                (Member("de"),),
                hostnames=(f"s{number}.svc.x.test", f"*.m{number}.x.test"),
                zone="x.test",
                refusal=refusal,
            )
            for number in range(services)
        ),
    )


def took(work: Callable[[], object], repeat: int = 1) -> float:
    """Seconds for one of so many calls."""
    begin = process_time()
    for _ in range(repeat):
        work()
    return (process_time() - begin) / repeat


def main() -> None:
    """Print the figures and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--services", type=int, default=1_000)
    options = parser.parse_args()
    written = policy(options.records, options.services)
    document = msgspec.to_builtins(written)
    snapshot = compile_policy(written, ())
    names = build_names(snapshot)
    asked = [wire_name(f"host-{number}.x.test") for number in range(0, options.records, 2)]

    def ask() -> None:
        for name in asked:
            static_content(names, name, wire.MX)

    result = {
        "records": options.records,
        "services": options.services,
        "documents_s": round(took(lambda: PolicyDocument.model_validate(document)), 3),
        "compile_s": round(took(lambda: compile_policy(written, ())), 3),
        "names_s": round(took(lambda: build_names(snapshot)), 3),
        "findings_s": round(took(lambda: list(zone_findings(snapshot, ZoneLeads(snapshot)))), 3),
        "first_answer_us": round(1e6 * took(ask) / len(asked), 1),
        "answer_us": round(1e6 * took(ask) / len(asked), 1),
        "service_us": round(1e6 * took(lambda: snapshot.host_of("s5.svc.x.test"), 100_000), 2),
        "wildcard_us": round(1e6 * took(lambda: snapshot.host_of("a.b.m5.x.test"), 100_000), 2),
    }
    for key, value in result.items():
        print(f"{key:16} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()

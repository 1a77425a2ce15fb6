"""The page of DNS clauses, written from the tests that hold them: `make docs`.

Tests say what they hold with `@pytest.mark.rfc("7871", "7.1.2", "a source prefix length of 0 hides the client")`. The
markers are read from the sources, so that it needs nothing installed and takes no time.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/dns-compliance.md"

TITLES = {
    "1034": "Domain names: concepts and facilities",
    "1035": "Domain names: implementation and specification",
    "1912": "Common DNS operational and configuration errors",
    "1982": "Serial number arithmetic",
    "1995": "Incremental zone transfer",
    "1996": "Prompt notification of zone changes",
    "2136": "Dynamic updates",
    "2181": "Clarifications to the DNS specification",
    "2308": "Negative caching of DNS queries",
    "3225": "Indicating resolver support of DNSSEC",
    "3596": "DNS extensions to support IP version 6",
    "3597": "Handling of unknown record types",
    "4034": "DNS security: resource records",
    "4035": "DNS security: protocol",
    "4074": "Common misbehaviour against queries for IPv6 addresses",
    "4343": "Case insensitivity of names",
    "4471": "Predecessors and successors of names",
    "4592": "Wildcards",
    "4892": "Identifying a name server instance",
    "5001": "Name server identifier (NSID)",
    "5452": "Resilience against forged answers",
    "5936": "Zone transfer (AXFR)",
    "6604": "RCODE and status bits of redirected answers",
    "6605": "ECDSA in DNSSEC",
    "6781": "DNSSEC operational practices",
    "6840": "Clarifications to DNSSEC",
    "6891": "Extension mechanisms for DNS (EDNS)",
    "6895": "DNS IANA considerations",
    "6979": "Deterministic ECDSA",
    "7344": "Automating DNSSEC delegation trust maintenance",
    "7583": "DNSSEC key rollover timing",
    "7766": "DNS over TCP",
    "7828": "EDNS TCP keepalive",
    "7830": "EDNS padding",
    "7871": "Client subnet in DNS queries",
    "7873": "DNS cookies",
    "8020": "NXDOMAIN: there really is nothing underneath",
    "8078": "Managing DS records through CDS and CDNSKEY",
    "8198": "Aggressive use of DNSSEC-validated caches",
    "8482": "Minimal answers to ANY",
    "8490": "DNS stateful operations",
    "8906": "Failure to communicate: common errors of servers",
    "8914": "Extended DNS errors",
    "8945": "Transaction signatures (TSIG)",
    "9018": "Interoperable DNS server cookies",
    "9077": "NSEC and NSEC3 TTLs",
    "9210": "DNS over TCP: operational requirements",
    "9460": "Service bindings (SVCB and HTTPS)",
    "9471": "Glue in referrals",
    "9619": "One question per query",
    "9715": "Avoiding IP fragmentation",
    "9824": "Compact denial of existence",
}
"""The RFCs that markers may name, as the page calls them."""

_MARK = "pytest.mark.rfc"
_SECTION = re.compile(r"(Appendix )?[0-9A-Z]+(\.[0-9]+)*")


@dataclass(frozen=True, slots=True)
class Clause:
    """What holds, by which section of which RFC."""

    number: str
    section: str
    holds: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A test function: its file, relative to the project, and its name."""

    file: str
    name: str


class MarkerError(ValueError):
    """A marker that says no clause."""


def collect(folder: Path) -> dict[Clause, list[Proof]]:
    """The clauses that the tests below a folder hold.

    Raises:
        MarkerError: a marker is wrong; says where, and what.
    """
    found: dict[Clause, list[Proof]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        text = file.read_text()
        if _MARK in text:
            name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else file.name
            for clause, function in markers(text, name):
                tests = found.setdefault(clause, [])
                if Proof(name, function) not in tests:
                    tests.append(Proof(name, function))
    return found


def markers(source: str, file: str) -> Iterator[tuple[Clause, str]]:
    """The markers of a source file, those of single parameters included, each with its test function's name.

    Raises:
        MarkerError: as in `collect`.
    """
    tree = ast.parse(source, file)
    calls = {id(node) for node in ast.walk(tree) if _is_marker(node)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test_"):
            for decorator in function.decorator_list:
                for node in ast.walk(decorator):
                    if isinstance(node, ast.Call) and id(node) in calls:
                        calls.remove(id(node))
                        yield _clause(node, file), function.name
    for node in ast.walk(tree):
        if id(node) in calls:
            raise MarkerError(f"{file}:{getattr(node, 'lineno', 0)}: {_MARK} belongs on a test function")


def _is_marker(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == _MARK


def _clause(call: ast.Call, file: str) -> Clause:
    where = f"{file}:{call.lineno}: {_MARK}"
    values = [part.value if isinstance(part, ast.Constant) else None for part in call.args]
    match values:
        case [str(number), str(section), str(holds)] if not call.keywords:
            pass
        case _:
            raise MarkerError(f"{where} takes three strings as they are: number, section, what holds")
    if number not in TITLES:
        raise MarkerError(f"{where}: RFC {number} has no title in tests/docs/compliance.py; add one")
    if not _SECTION.fullmatch(section):
        raise MarkerError(f"{where}: a section looks like `7.2.1`, not `{section}`")
    if not holds or holds != " ".join(holds.split()) or "|" in holds:
        raise MarkerError(f"{where}: what holds is one line, without `|`")
    return Clause(number, section, holds)


def page(clauses: dict[Clause, list[Proof]]) -> str:
    """The document."""
    parts = [INTRODUCTION]
    numbers = sorted({clause.number for clause in clauses}, key=int)
    parts.append(f"{len(clauses)} clauses of {len(numbers)} RFCs:\n")
    for number in numbers:
        rows = sorted((clause for clause in clauses if clause.number == number), key=_order)
        link = f"https://www.rfc-editor.org/rfc/rfc{number}"
        parts.append(f"### RFC {number}: {TITLES[number]}\n")
        parts.append(f"| [§]({link}) | what holds | test |\n|---|---|---|")
        parts.extend(f"| {row.section} | {row.holds} | {_tests(clauses[row])} |" for row in rows)
        parts.append("")
    return "\n".join((*parts, OMISSIONS))


def _order(clause: Clause) -> tuple[list[tuple[int, str]], str]:
    words = re.split(r"[ .]", clause.section)
    return [(int(word), "") if word.isdigit() else (1000, word) for word in words], clause.holds


def _tests(tests: Iterable[Proof]) -> str:
    return ", ".join(f"[{test.name.removeprefix('test_')}](../{test.file})" for test in tests)


INTRODUCTION = """\
# DNS compliance

<!-- Written by `make docs` from the markers of tests (`pytest.mark.rfc`); change those, or tests/docs/compliance.py. -->

What gtm's DNS does, clause by clause, with the tests that hold it, and at the end [what it does not do](#what-gtm-does-not-do).
gtm is an authoritative server: clauses that concern only resolvers are not here. [HTTP and DNS](api.md) says what
answers contain.

## What holds
"""

OMISSIONS = """\
## What RFCs leave open

| RFC | question | gtm |
|---|---|---|
| 7871 §7.1.2 | family 0 in an option without an address | FORMERR like every unknown family. Families 1 and 2 hide a client as well. |
| 7871 §7.2.1 | more specific answers inside less specific ones | The less specific network is split: scopes never overlap, overrides and IPv4-mapped addresses included. |
| 7871 §7.2.1 | a network too wide for one answer | The answer is lawful for all of it, and its scope is longer than what was asked, so that resolvers keep it for questions of that length alone. |
| 7871 §7.2.1 | an alias to a name with tailored answers | Followed where the policy has both names: alias and addresses come with the scope of the addresses. The RFC would rather see the alias alone, which costs resolvers a question more. |
| 7871 §7.4 | negative answers for some networks and positive ones for others | Never by refusal. Where regions differ in address families, clients of regions without one get NODATA, for no longer than an address is kept; `gtm check` finds it (`empty_a`, `empty_aaaa`), and `families: separate` mends it. |
| 7871 §10 | private addresses as clients | Located like others, for operators may say where their own are; else of unknown place. The resolver's address does not stand in for them. |
| 7873 §5.2 | queries without a cookie, or with a bad one | Answered; a good cookie only lifts limits. |
| 8482 §4 | ANY | One HINFO record. |
| 8906 §7 | a name outside all zones | REFUSED, with extended error 20. |
| 9824 | proof of absence, NXDOMAIN or NOERROR | Compact denial: NOERROR with NXNAME for clients with DO; NXDOMAIN with CO, and without DO. |
| 9619 | queries of several questions | FORMERR. |

## What gtm does not do

| RFC | what | why |
|---|---|---|
| 1034 §5, 7871 §7.1 | resolving for clients (recursion) | gtm answers for its own zones; RA is always clear |
| 1034 §4.3.5, 5936, 1995 | zone transfers | an answer depends on the client, which no zone file can say: AXFR and IXFR are REFUSED; edges get the policy over the feed |
| 1996 | NOTIFY | there are no secondaries to notify; the opcode is NOTIMP |
| 2136 | dynamic updates | policy changes go through the API, are compiled whole and numbered; the opcode is NOTIMP |
| 7314 | zone expiry for secondaries | likewise; the option is ignored |
| 9432 | catalogue zones | likewise; zones are in the policy |
| 8945 | transaction signatures | nothing that would need them is served; a signature is one more record, and answers are unsigned |
| 6672 | DNAME | answers would have to be signed for names that nobody wrote; wildcards and CNAME are there |
| 5155, 9276 | hashed denial of existence (NSEC3) | compact denial lists no names either, and takes no hashing |
| 5702, 8080 | signing by RSA or EdDSA | ECDSA P-256 is what all validators take, and short |
| 7830, 8467 | padding | it hides sizes inside encryption, and there is none |
| 7858, 8484, 9250 | DNS over TLS, HTTPS and QUIC | resolvers ask authoritative servers over UDP and TCP |
| 8490 | stateful operations | nobody asks authoritative servers for them; the opcode is NOTIMP |
| 9567 | reports of resolvers' errors | what edges answer is counted there |
"""


def main() -> int:
    """Write the page anew."""
    try:
        PAGE.write_text(page(collect(ROOT / "tests")))
    except MarkerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""As much of dig as the documents use, for machines that have none: `dig @SERVER -p PORT [+OPTION …] NAME [TYPE]`."""

from __future__ import annotations

import sys

import dns.edns
import dns.message
import dns.opcode
import dns.query
import dns.rcode
import dns.rdatatype


def main(arguments: list[str]) -> int:
    """Ask, and print as dig does; 9 if there is no answer, as dig has it."""
    server, port, plus, words = "127.0.0.1", 53, set[str](), list[str]()
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("@"):
            server = argument[1:]
        elif argument == "-p":
            port = int(next(rest))
        elif argument.startswith("+"):
            plus.add(argument[1:])
        else:
            words.append(argument)
    types = [word for word in words if word in dns.rdatatype.RdataType.__members__]
    (name,) = (word for word in words if word not in types)
    options: list[dns.edns.Option] = []
    for option in plus:
        if option.startswith("subnet="):
            address, _, length = option.removeprefix("subnet=").partition("/")
            options.append(dns.edns.ECSOption(address, int(length)))
    query = dns.message.make_query(name, types[0] if types else "A", use_edns=0, options=options)
    try:
        reply = dns.query.udp_with_fallback(query, server, timeout=5, port=port)[0]
    except (OSError, dns.exception.DNSException):
        return 9
    for line in _lines(reply, plus):
        print(line)
    return 0


def _lines(reply: dns.message.Message, plus: set[str]) -> list[str]:
    if "short" in plus:
        return [rdata.to_text() for rrset in reply.answer for rdata in rrset]
    lines = []
    if "comments" in plus or "noall" not in plus:
        status = dns.rcode.to_text(reply.rcode())
        lines += [
            f";; ->>HEADER<<- opcode: {dns.opcode.to_text(reply.opcode())}, status: {status}, id: {reply.id}"
        ]
        for option in reply.options:
            if isinstance(option, dns.edns.ECSOption):
                subnet = f"{option.address}/{option.srclen}/{option.scopelen}"
                lines += [f"; CLIENT-SUBNET: {subnet}"]
            elif isinstance(option, dns.edns.EDEOption):
                words = option.code.name.replace("_", " ").title()
                lines += [f"; EDE: {int(option.code)} ({words}): ({option.text})"]
        lines += [";; QUESTION SECTION:", *(f";{rrset.to_text()}" for rrset in reply.question), ""]
    if "answer" in plus or "noall" not in plus:
        lines += [line for rrset in reply.answer for line in rrset.to_text().splitlines()]
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

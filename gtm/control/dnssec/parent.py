"""What the parent of a zone has for it: DS records, asked of a resolver."""

from __future__ import annotations

import logging

import dns.asyncquery
import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype

logger = logging.getLogger(__name__)

_TIMEOUT = 5.0


async def ds_records(zone: str, resolver: tuple[str, int]) -> frozenset[bytes] | None:
    """RDATA of the DS records that the parent has for a zone; None if that could not be learned.

    Asked over TCP: an answer that was forged on the way would let a key be removed that is still trusted.
    """
    name = dns.name.from_text(zone)
    query = dns.message.make_query(name, dns.rdatatype.DS)
    host, port = resolver
    try:
        answer = await dns.asyncquery.tcp(query, host, _TIMEOUT, port)
    except (OSError, EOFError, dns.exception.DNSException) as error:
        logger.warning("cannot ask %s for the DS records of `%s`: %s", host, zone, error)
        return None
    if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        logger.warning(
            "%s answers %s for the DS records of `%s`", host, dns.rcode.to_text(answer.rcode()), zone
        )
        return None
    found = [one for one in answer.answer if one.name == name and one.rdtype == dns.rdatatype.DS]
    return frozenset(record.to_wire() or b"" for one in found for record in one)

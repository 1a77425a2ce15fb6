"""What a stolen recording of the feed gives away: the private keys that edges sign with."""

from __future__ import annotations

import stat
import time
from base64 import b64encode
from pathlib import Path

import dns.dnssec
import dns.message
import dns.name
import dns.query
import dns.rdatatype
import httpx

from gtm.feed import lastgood
from gtm.feed.sealing import FILE, SealingKey
from gtm.feed.wire import SEALING_KEY, FeedError, KeysMessage, SealedKeysMessage, StateMessage, decode
from tests.drills.arena import Arena, attack, held
from tests.drills.attacks.b1_votes import token
from tests.patience import PATIENCE
from tests.system.harness import System, eventually

ZONE = dns.name.from_text("sealed.test")


def recorded(system: System, stolen: str, edge: str, **headers: str) -> list[bytes]:
    """The lines of a feed until its first state, as a proxy would record them."""
    lines = []
    headers["Authorization"] = f"Bearer {stolen}"
    url, params = f"{system.control}/v1/feed", {"edge": edge}
    with httpx.stream("GET", url, params=params, headers=headers, timeout=20, trust_env=False) as response:
        held(response.status_code == 200, f"the feed answers {response.status_code}")
        for line in response.iter_lines():
            lines.append(line.encode())
            if isinstance(decode(lines[-1]), StateMessage):
                break
    return lines


def validates(system: System) -> bool:
    """Whether the edge signs, so that its answer validates from the DS record on."""

    def sets(rdtype: dns.rdatatype.RdataType) -> list[dns.rrset.RRset]:
        query = dns.message.make_query(ZONE, rdtype, want_dnssec=True)
        return dns.query.tcp(query, "127.0.0.1", port=system.dns_port, timeout=5).answer

    (record,) = system.api("GET", "/v1/dnssec/sealed.test").json()["ds"]
    found = sets(dns.rdatatype.DNSKEY)
    if len(found) != 2:
        return False
    keys, signatures = found
    digests = [dns.dnssec.make_ds(ZONE, key, "SHA256").to_text().upper() for key in keys if key.flags & 1]
    held(record.split(" IN DS ")[1].upper() in digests, "the edge has another key than the DS record")
    dns.dnssec.validate(keys, signatures, {ZONE: keys})
    answer, signatures = sets(dns.rdatatype.SOA)
    dns.dnssec.validate(answer, signatures, {ZONE: keys})
    return True


@attack("B5", "the feed recorded with an edge's token, for the private keys of a signed zone")
def recordings(arena: Arena) -> str:
    """There is none in it, with a public key or without; edges sign all the same, and no other key opens what they get."""
    with arena.own() as running:
        zone = {"primary_ns": "ns1.sealed.test", "hostmaster": "root.sealed.test", "dnssec": True}
        running.api("PUT", "/v1/zones/sealed.test", json=zone).raise_for_status()
        eventually(lambda: validates(running), "the zone is signed", PATIENCE)
        directories = [path.parent for path in Path(running.data_dir).rglob(FILE)]
        held(len(directories) == 1, f"keys of edges are in {directories}")
        mode = stat.S_IMODE((directories[0] / FILE).stat().st_mode)
        held(mode == 0o600, f"the edge's key has mode {mode:o}")
        kept = lastgood.load(directories[0] / "edge-last-good")
        (keys,) = next(message.keys.zones for message in kept if isinstance(message, KeysMessage))
        secret = keys.private
        stolen, key = token(running, f"thief-{time.monotonic_ns()}", edges="*"), SealingKey()

        without = recorded(running, stolen, "local")
        held(
            not any(isinstance(decode(line), KeysMessage | SealedKeysMessage) for line in without),
            "sent keys",
        )
        to_other = recorded(running, stolen, "other", **{SEALING_KEY: key.public})
        sealed = [one for line in to_other if isinstance(one := decode(line), SealedKeysMessage)]
        held(len(sealed) == 1, f"{len(sealed)} sealed messages")
        for haystack in (*without, *to_other, sealed[0].sealed):
            for needle in (secret, b64encode(secret), secret.hex().encode()):
                held(needle not in haystack, "a private key is in the recording")
        held(
            key.open(sealed[0], "other", stolen).keys.zones[0].private == secret,
            "its own edge cannot open it",
        )
        opened = 0
        ours = SealingKey.kept(directories[0])
        for other, edge, text in ((ours, "other", stolen), (key, "local", stolen), (key, "other", "gtm_x")):
            try:
                other.open(sealed[0], edge, text)
                opened += 1
            except FeedError:
                pass
        held(opened == 0, f"{opened} other edges open it")
    return "no private key among what was recorded; the zone validates"

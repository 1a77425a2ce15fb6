"""Rolls, with real keys: what edges really answer is validated by another implementation, whatever caches hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdataset
import pytest
from hypothesis import example, given

from gtm.control.dnssec.signing import ds_rdata, generate, sign_sets
from gtm.core.signing.keys import DNSKEY, Keys, SignedSet, ZoneKeys, key_tag
from gtm.core.signing.rollover import DAY, HOUR, Key, KeyRole, signing_key
from gtm.dns.answer.answerer import Answerer
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.telemetry import Counts
from tests.core.signing.test_rollover import ACTS, TIMES, World, play
from tests.core.strategies import quick
from tests.dns.world import locate, router
from tests.dns.zone.signing import ask, validate

ZONE = "demo.test"
NAME = dns.name.from_text(ZONE)
ROLL = [*[(DAY, "nothing")] * 32, (HOUR, "delegate"), (DAY, "look"), *[(DAY, "nothing")] * 34]
"""What goes on until both keys are replaced."""


@dataclass
class SignedWorld(World):
    """A zone whose keys are real, and what edges have got of them since when."""

    private: dict[str, bytes] = field(default_factory=dict)
    sent: list[tuple[float, ZoneKeys]] = field(default_factory=list)

    def check(self) -> None:
        """What edges answer now, in reach or alone since a while, is valid by what they say of their keys."""
        super().check()
        zsk = signing_key(self.keys)
        assert zsk is not None
        sets = sign_sets(ZONE, self.keys, self.private, self.now, withdrawing=False)
        made = ZoneKeys(ZONE, sets, key_tag(zsk.dnskey), zsk.dnskey, self.private[zsk.id])
        self.sent.append((self.now, made))
        held = self._held()
        answers = [
            ask(_edge(keys, self.now), name, rdtype)
            for keys in held
            for name, rdtype in ((ZONE, "SOA"), (f"nothing.{ZONE}", "A"))
        ]
        for keys in held:
            signed = next(one for one in keys.sets if one.rdtype == DNSKEY)
            if self.parent:
                assert all(self._trusts(ds, signed) for ds in self._delegations())
            anchors = {NAME: _records(DNSKEY, signed.rdatas)}
            for answer in answers:
                assert validate(answer, anchors, now=self.now).secure

    def _held(self) -> list[ZoneKeys]:
        """What edges may answer with now, each combination of keys once: as of when it was signed first."""
        found: dict[tuple[object, int], ZoneKeys] = {}
        for (since, keys), end in zip(
            self.sent, [*(at for at, _ in self.sent[1:]), self.now + 1], strict=True
        ):
            if end > self.now - self.alone and since <= self.now:
                found.setdefault((keys.sets[0].rdatas, keys.key_tag), keys)
        return [keys for keys in found.values() if _alive(keys, self.now)]

    def _delegations(self) -> list[str]:
        """Ids of the keys that the parent points to, or did until lately."""
        ends = [*(at for at, _ in self.parent[1:]), self.now + 1]
        return [
            name
            for (_, name), end in zip(self.parent, ends, strict=True)
            if end > self.now - self.times.parent
        ]

    def _trusts(self, key_id: str, signed: SignedSet) -> bool:
        """Whether a DNSKEY set is valid by a DS record."""
        (key,) = [key for key in self.keys if key.id == key_id]
        ds = ds_rdata(ZONE, key.dnskey)
        trusted = [dnskey for dnskey in signed.rdatas if ds_rdata(ZONE, dnskey) == ds]
        signatures = _records(dns.rdatatype.RRSIG, signed.signatures)
        records = _records(DNSKEY, signed.rdatas)
        anchors = {NAME: _records(DNSKEY, tuple(trusted))}
        try:
            dns.dnssec.validate((NAME, records), (NAME, signatures), anchors, now=self.now)
        except dns.dnssec.ValidationFailure:
            return False
        return True

    def _new(self, role: KeyRole, *, urgent: bool = False) -> Key:
        key, private = generate(
            role, self.now, urgent=urgent, taken=[key_tag(one.dnskey) for one in self.keys]
        )
        self.private[key.id] = private
        return key


def _alive(keys: ZoneKeys, now: float) -> bool:
    """Whether the DNSKEY set's signatures are valid: an edge that is alone for longer is beyond what is promised."""
    signed = next(one for one in keys.sets if one.rdtype == DNSKEY)
    return all(now <= int.from_bytes(one[8:12], "big") for one in signed.signatures)


def _edge(keys: ZoneKeys, now: float) -> Answerer:
    return Answerer(router(), locate, Counts(), signer=ZoneSigner(Keys(1, (keys,)), lambda: now))


def _records(rdtype: int, rdatas: tuple[bytes, ...]) -> dns.rdataset.Rdataset:
    kind = dns.rdatatype.RdataType.make(rdtype)
    found = [dns.rdata.from_wire(dns.rdataclass.IN, kind, wire, 0, len(wire)) for wire in rdatas]
    return dns.rdataset.from_rdata_list(3600, found)


@pytest.mark.rfc("6781", "4.1.1.1", "answers validate at every step of a ZSK's pre-publication roll")
@pytest.mark.rfc("6781", "4.1.2", "DNSKEY sets validate by the DS record at every step of a KSK roll")
@quick(8)
@given(ACTS)
@example([(2 * DAY, "delegate"), (HOUR, "look"), (HOUR, "zsk"), (HOUR, "ksk"), *ROLL])
def test_what_edges_answer_is_valid(acts: list[tuple[float, str]]) -> None:
    """Answers and denials of any edge validate by the keys that any edge tells, through rolls of any kind."""
    play(SignedWorld(TIMES, TIMES.propagation - DAY), acts)


def test_a_roll_of_both_keys_is_among_them() -> None:
    """The example above really replaces both keys, so that what it shows is shown of rolls."""
    world = SignedWorld(TIMES, 0)
    before = {key.id for key in world.keys}
    play(world, [(2 * DAY, "delegate"), (HOUR, "look"), (HOUR, "zsk"), (HOUR, "ksk"), *ROLL])
    assert len(world.keys) == 2
    assert not before & {key.id for key in world.keys}

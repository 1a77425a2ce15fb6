"""The feed's wire format: one JSON message a line (application/x-ndjson), told apart by `type`.

Laws:
  1. A snapshot travels as the policy that was written, with the jurisdictions it was compiled against. Each receiver
     compiles it again: what does not compile here does not get used here.
  2. A snapshot carries the SHA-256 of its content. A receiver that computes another one drops it.
  3. Unknown fields are ignored and unknown types skipped, so that a newer control can feed an older edge. The checksum
     is therefore of the content as it was sent, fields unknown here included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from gtm.core.balance.spill.room import Room, Slots
from gtm.core.handoff.keys import PublicKeys
from gtm.core.latency.table import LatencyTable
from gtm.core.model.access import Access
from gtm.core.model.policy import Jurisdiction, Policy
from gtm.core.model.state import State
from gtm.core.model.units import MOST_INTEGER, MOST_MOMENT, MOST_REQUESTS, MOST_SECONDS
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.core.signing.keys import Keys
from gtm.nesting import shallow

# --- The types of numbers in reports and messages, one for each unit: whoever decodes one refuses what is beyond (`gtm.core.model.units`). ---


CounterValue = Annotated[int, Meta(ge=0, le=MOST_INTEGER)]
"""What only grows: sequence numbers, requests since a start, microseconds of work."""
Requests = Annotated[int, Meta(ge=0, le=int(MOST_REQUESTS))]
"""Requests at once."""
Moment = Annotated[float, Meta(ge=0, le=MOST_MOMENT)]
"""POSIX seconds."""
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
"""An age or a duration."""
Followers = Annotated[int, Meta(ge=1, le=1_000_000)]
"""Tokens, or whoever follows by one."""


# --- The feed's wire format: one JSON message a line (application/x-ndjson), told apart by `type`. ---


MAX_LINE = 64 * 1024 * 1024
"""Longest message accepted, in bytes: far above 1,000 regions × 10,000 rules, far below what would hurt."""

FORMAT = 4
"""The feed format of this gtm. It grows whenever a field is added that restricts (another dimension of a residency
rule, say) or says what exists (a zone's records): a receiver that would ignore such a field must refuse the snapshot, or
its fence would stand open, or it would deny names that exist, which resolvers keep for everyone.

2: operators' jurisdictions in residency rules, rules' readings of uncertain locations, terms of memberships.
3: records of zones, wildcard host names, signed zones.
4: what this version adds to rules and services; each is named in CHANGELOG.md. Of residency rules:
`on_doubtful_location`.

A new value of an enum (a steering method, an admin state) needs no growth: a receiver that does not know it cannot read the
message at all (`FeedError`), whatever `FORMAT` says, and answers on from the policy it has. So in a policy it is told
apart from a damaged message by control alone, which sees edges that stay behind; in a State it would cost edges the news of
health. There a new value may only be sent once every edge knows it: one version reads it, the next writes it."""

CONTENT_TYPE = "application/x-ndjson"
EDGE_NAME = "GTM-Edge-Name"
"""Header of a refusal (403) for the edge's name: the name that the token is for, or a pattern of names."""
SEALING_KEY = "GTM-Edge-Key"
"""Header of a request for the feed: the edge's public key (X25519, 32 bytes in base64), which its keys are sealed to."""

_policies = msgspec.json.Decoder(Policy)


class FeedError(Exception):
    """A message that cannot be used: malformed, damaged, or a policy that does not compile."""


@dataclass(frozen=True, slots=True)
class SnapshotMessage:
    """A policy revision. `created` is POSIX seconds; `sha256` covers `policy` and `jurisdictions` (hex).

    `needs` is the `FORMAT` that a receiver must understand to read the policy as it was meant.
    """

    revision: int
    created: float
    sha256: str
    policy: Policy
    jurisdictions: tuple[Jurisdiction, ...]
    needs: int = FORMAT

    @classmethod
    def of(
        cls, revision: int, created: float, policy: Policy, jurisdictions: tuple[Jurisdiction, ...]
    ) -> SnapshotMessage:
        """A message with its checksum computed, over values as they will arrive (an int in a float field is a float)."""
        policy = _policies.decode(msgspec.json.encode(policy))
        return cls(revision, created, checksum(policy, jurisdictions), policy, jurisdictions)

    def compiled(self) -> Snapshot:
        """Verify and compile.

        Raises:
            FeedError: the checksum does not match, or the policy needs a newer gtm.
            PolicyError: the policy does not compile.
        """
        if self.needs > FORMAT:
            raise FeedError(
                f"revision {self.revision} needs a newer gtm (feed format {self.needs}, here {FORMAT})"
            )
        if checksum(self.policy, self.jurisdictions) != self.sha256:
            raise FeedError(f"snapshot of revision {self.revision} is damaged: its checksum does not match")
        return compile_policy(self.policy, self.jurisdictions, revision=self.revision)


@dataclass(frozen=True, slots=True)
class StateMessage:
    """The state of the world at one epoch.

    `keep_plan`: its sender does not know the plan yet, and the receiver keeps the one that it follows.
    """

    state: State
    keep_plan: bool = False

    def after(self, before: State) -> State:
        """The state of a receiver that was in another before."""
        return replace(self.state, plan=before.plan) if self.keep_plan else self.state


@dataclass(frozen=True, slots=True)
class LatencyMessage:
    """Measured latency, as control has it together."""

    table: LatencyTable


@dataclass(frozen=True, slots=True)
class AccessMessage:
    """The tokens an edge accepts."""

    access: Access


@dataclass(frozen=True, slots=True)
class KeysMessage:
    """What edges sign the answers of signed zones with. It holds private keys: no log may have it, and no feed in clear."""

    keys: Keys


@dataclass(frozen=True, slots=True)
class SealedKeysMessage:
    """Control → one edge: an encoded `KeysMessage` that only this edge can open (`gtm.feed.sealing`)."""

    sealed: bytes


@dataclass(frozen=True, slots=True)
class HandoffKeysMessage:
    """The public keys by which handoffs are verified, and whose they are. Older edges, which sign none, skip it."""

    keys: PublicKeys


@dataclass(frozen=True, slots=True)
class RoomReport:
    """What one balancer said of its region's slots, `age` seconds ago (`gtm.core.balance.spill.room.Room`)."""

    source: str
    started: Moment
    sequence: CounterValue
    age: Seconds
    whole: Slots
    parts: dict[str, Slots] = field(default_factory=dict)

    def held(self, now: float, late: float = 0.0) -> Room:
        """The same by the clock of whoever holds it; `late`: seconds that it was on the way beyond the usual."""
        at = now - max(0.0, self.age) - late
        return Room(self.source, self.started, self.sequence, at, self.whole, self.parts)


@dataclass(frozen=True, slots=True)
class RoomMessage:
    """Free slots by region, up to ten times a second. Older edges skip it.

    What is free is divided among `senders`, the tokens that edges and balancers go by it with, and the part of each among those who do
    with it, which are `beside` for the receiver (itself among them): nobody has more by opening more. `suspects`: regions whose balancers
    fell silent a moment ago, to be probed at once. `sent`: when, by the even clock of the process of control that `sender` names: what
    is on the way for longer than usual is older than it says (`gtm.core.balance.spill.room.Transit`).
    """

    rooms: dict[str, tuple[RoomReport, ...]] = field(default_factory=dict)
    senders: Followers = 1
    suspects: tuple[str, ...] = ()
    sent: Seconds = 0.0
    sender: str = ""
    beside: Followers = 1


NO_ROOMS = RoomMessage()


@dataclass(frozen=True, slots=True)
class Peer:
    """A balancer as others of its region reach it: by UDP at an address (`192.0.2.1:8088`), believed by its public keys."""

    region: str
    name: str
    address: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeersMessage:
    """To balancers: who else there is. Edges are not sent it, and older balancers skip it."""

    peers: tuple[Peer, ...] = ()


NO_PEERS = PeersMessage()


@dataclass(frozen=True, slots=True)
class HeartbeatMessage:
    """Nothing new, still here. `now` is the sender's clock in POSIX seconds."""

    now: float


Lasting = SnapshotMessage | AccessMessage | KeysMessage | HandoffKeysMessage | LatencyMessage
"""What control says that stays true without it: kept on disk, and told every process that starts."""

Message = (
    SnapshotMessage
    | StateMessage
    | LatencyMessage
    | AccessMessage
    | KeysMessage
    | SealedKeysMessage
    | HandoffKeysMessage
    | RoomMessage
    | PeersMessage
    | HeartbeatMessage
)
"""A message that control sends to edges."""

_Message = TypeVar("_Message")


class _Envelope(msgspec.Struct):
    type: str
    body: msgspec.Raw


class _SnapshotContent(msgspec.Struct):
    """What a snapshot's checksum covers, in the sender's own bytes."""

    sha256: str
    policy: msgspec.Raw
    jurisdictions: msgspec.Raw


def checksum(policy: Policy, jurisdictions: tuple[Jurisdiction, ...]) -> str:
    """SHA-256, in hex, of the canonical JSON of what a snapshot consists of."""
    return sha256(msgspec.json.encode([policy, jurisdictions], order="sorted")).hexdigest()


class Lines(Generic[_Message]):
    """A set of messages as lines.

    It is made while modules are loaded: where two threads are the first to read a type, msgspec crashes the process.

    Args:
        types: all of them, by the name that they have in a line.
    """

    def __init__(self, types: Mapping[str, type[_Message]]) -> None:
        self.types = dict(types)
        self._names: dict[type, str] = {kind: name for name, kind in types.items()}
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in types.items()}

    def encode(self, message: _Message) -> bytes:
        """One line, newline included."""
        body = msgspec.Raw(msgspec.json.encode(message, order="sorted"))
        return msgspec.json.encode(_Envelope(self._names[type(message)], body)) + b"\n"

    def decode(self, line: bytes) -> _Message | None:
        """The message in a line (with or without its newline); None if it is of a type unknown here.

        Raises:
            FeedError: the line is not a message of this format.
        """
        if len(line) > MAX_LINE:
            raise FeedError(f"message of {len(line)} bytes; the most accepted is {MAX_LINE}")
        try:
            envelope = msgspec.json.decode(shallow(line), type=_Envelope)
            decoder = self._decoders.get(envelope.type)
            if decoder is None:
                return None
            message = decoder.decode(envelope.body)
            if isinstance(message, SnapshotMessage):
                return replace(message, sha256=_understood(message, envelope.body))
        except ValueError as error:
            raise FeedError(f"malformed feed message: {error}") from error
        return message


OF_VIEW: Mapping[str, type[Lasting | StateMessage | RoomMessage]] = MappingProxyType(
    {
        "snapshot": SnapshotMessage,
        "state": StateMessage,
        "latency": LatencyMessage,
        "access": AccessMessage,
        "keys": KeysMessage,
        "handoff_keys": HandoffKeysMessage,
        "room": RoomMessage,
    }
)
"""What makes a View, by the names that it has in lines: those of the feed, and those between processes of one gtm."""

_FEED = Lines[Message](
    {
        **OF_VIEW,
        "sealed_keys": SealedKeysMessage,
        "peers": PeersMessage,
        "heartbeat": HeartbeatMessage,
    }
)
encode = _FEED.encode
decode = _FEED.decode


def _understood(message: SnapshotMessage, body: msgspec.Raw) -> str:
    """The checksum of what was understood of a snapshot whose bytes match its checksum; else the one that came with it.

    `SnapshotMessage.compiled` will find such a one damaged.
    """
    content = msgspec.json.decode(body, type=_SnapshotContent)
    if sha256(b"[%b,%b]" % (content.policy, content.jurisdictions)).hexdigest() != content.sha256:
        return message.sha256
    return checksum(message.policy, message.jurisdictions)

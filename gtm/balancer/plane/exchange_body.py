"""A request's body while it comes: how far it is awaited before anything is decided, what it says, and whether more of it may go on.

    come so far        nothing goes by what it says     choosing goes by it                      limits go by it
    64 KiB, or all     decided                          awaited                                  awaited
    1 MiB              -                                decided, as soon as its model is known   awaited
    `read_mib`         -                                decided, or refused without a model      refused

Where files say which models servers have, and limits, what comes after the decision is looked at before it goes on: a body that proves to have two meanings never
reaches its server whole (laws of `gtm.balancer.wire.scanning`).
"""

from __future__ import annotations

from gtm.balancer.plane.exchange_end import ExchangeEnd
from gtm.balancer.plane.exchange_state import READING
from gtm.balancer.wire.bodies import (
    READ,
    BodyError,
    begins_object,
    may_be_object,
    plain_body,
    read_loosely,
    read_strictly,
    too_large,
    unnamed,
)
from gtm.balancer.wire.endpoints import BodyKind
from gtm.balancer.wire.estimate import unread_tokens
from gtm.balancer.wire.facts import MAX_INSPECTED, MAX_NAME, Facts
from gtm.balancer.wire.scanning import BodyScan

FIRST = 64 * 1024
"""Bytes of a body that is read by nobody here, and that must have come before it takes a slot: of most bodies, all."""
_SMALL, _TOGETHER = 4096, 64 * 1024
"""Bytes of a piece that is kept together with the one before, and of what is kept together."""
_UNKNOWN, _NONE = BodyKind.UNKNOWN, BodyKind.NONE


class ExchangeBody(ExchangeEnd):
    """Reads a request's body, as the table above says."""

    __slots__ = ()

    def _awaited(self) -> int:
        """Bytes of its body, beyond the first, that are awaited before anything is decided."""
        if self._kind not in READ:
            return FIRST
        rules = self.proxy.body_rules
        if rules is not None and rules.whole:
            return self.proxy.most_read
        looks = self.proxy.picker.looks_at
        return MAX_INSPECTED if looks.hints or looks.models else FIRST

    def _keep(self, piece: bytes) -> None:
        """Small pieces are kept together: of single bytes a list takes forty times their room."""
        pieces = self._pieces
        last = pieces[-1]
        if len(piece) >= _SMALL or len(last) >= _TOGETHER:
            pieces.append(piece)
            return
        if not isinstance(last, bytearray):
            last = pieces[-1] = bytearray(last)
        last += piece

    def _reading(self, more: int) -> None:
        """So many bytes more have come of a body that is awaited."""
        if self._kind is _UNKNOWN and more == self.received and not self._may_be_object():
            self._kind = BodyKind.OPAQUE
        if self.received <= self._until:
            return
        if self._until == FIRST:  # most bodies are shorter, and nobody asks this
            self._until = self._awaited()
            if self.received <= self._until:
                return
        if self._until == self.proxy.most_read:
            self.refuse(too_large(self._until).refusal)
            return
        if self._kind in READ:
            if self._scan is None and not self._scans():
                return
            if self._scan is not None and not self._scan.known and self._waits_for_model():
                return
        self._read()

    def _may_be_object(self) -> bool:
        """Whether its body may be a JSON object, by its first piece; where nothing but the choice goes by it, in UTF-8."""
        if b"content-encoding" in self.head.seen:
            return True
        begin = self._pieces[0]
        return begins_object(begin) if self.proxy.body_rules is None else may_be_object(begin)

    def _waits_for_model(self) -> bool:
        """Whether no more is decided before its model is known, which the end of its body may say; it is refused where too much has come."""
        looks, most = self.proxy.picker.looks_at, self.proxy.most_read
        if not looks.models:
            return False
        if self.received > most and looks.declared:
            self.refuse(unnamed(self._kind, most))
            return True
        return self.received <= most

    def _scans(self) -> bool:
        """Begin to look for its model in what comes; whether it goes on."""
        try:
            self._scan = BodyScan(self.head, self._kind, self.proxy.most_read)
        except BodyError as error:
            return self._misread(error)
        return all(self._scanned(piece) for piece in self._pieces)

    def _scanned(self, piece: bytes | bytearray) -> bool:
        """Look for its model in some more of its body; whether it goes on."""
        scan = self._scan
        if scan is None:
            return True
        try:
            scan.feed(piece)
            if self.received == self.head.length and self.phase is not READING:
                scan.end()  # before its last byte goes on
        except BodyError as error:
            return self._misread(error)
        return True

    def _misread(self, error: BodyError) -> bool:
        """Its body has not one meaning: whether it goes on, because nothing goes by it but the choice."""
        self._scan = None
        if self.proxy.body_rules is None:
            return True
        self.refuse(error.refusal)
        return False

    def _read(self) -> None:
        """Its body has come as far as it is awaited: what it says of its work."""
        try:
            self.facts = self._facts()
        except BodyError as error:
            self.refuse(error.refusal)
            return
        kind = self._kind
        if kind is not _NONE and not self.facts.model and self.proxy.picker.looks_at.declared:
            self.refuse(unnamed(kind))
            return
        self._admit()

    def _facts(self) -> Facts:
        """What its body says of its work.

        Raises:
            BodyError: limits go by it, and it has not one meaning.
        """
        head, rules, cut, media = self.head, self.proxy.body_rules, self.proxy.picker.cut, self.proxy.media
        kind, scan = self._kind, self._scan
        if (scan is not None or not self._body_ended) and rules is not None and kind in READ:
            if scan is None or rules.whole:
                raise BodyError(
                    "limits_changed", "limits that go by the body came while it was sent: try again", 503
                )
            if self._body_ended:
                scan.end()
        if scan is not None:
            if rules is None:
                self._scan = None
            model = scan.model if scan.model is None or len(scan.model) <= MAX_NAME else None
            said, size = head.seen.get(b"content-type", b""), head.length or self.received
            return Facts(model, unread_tokens(head.path, said, size, media))
        body = b"".join(self._pieces) if self._body_ended and self._keeps else b""
        if rules is None:
            return read_loosely(head, kind, body, cut, media)
        if b"content-encoding" in head.seen and kind in READ:
            body = self._plain = plain_body(head, body, self.proxy.most_read)
        return read_strictly(head, kind, body, rules, cut, media)

    def _ends_well(self) -> bool:
        """Whether its body may end here, as far as anybody asks."""
        try:
            if self._scan is not None:
                self._scan.end()
        except BodyError as error:
            return self._misread(error)
        return True

    def _admit(self) -> None:
        """It is known what it asks for."""
        raise NotImplementedError

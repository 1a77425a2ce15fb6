"""Policies compiled, each once a process.

A change of policy passes the compiler as a dry run, as what is written, as what the rows say then, as what the safety rules
compare with, and as what is published. All five are the same policy, and a large one takes seconds: so the last few are kept,
by the checksum that edges verify as well (`gtm.feed.wire.checksum`). The receivers' own compilations stay theirs.
"""

from __future__ import annotations

import gc
from collections import OrderedDict, deque
from dataclasses import replace
from itertools import count
from threading import Lock

import msgspec

from gtm.core.model.policy import Policy
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.wire import SnapshotMessage

KEPT = 3
"""Policies: the one in force, the one that is to be, and one that somebody else tries meanwhile."""

COLLECT_EVERY = 100
"""Compilations between two looks at all there is for garbage: what little was there at each of them is collected then."""

_kept: OrderedDict[str, Snapshot] = OrderedDict()
_given: deque[tuple[Policy, str]] = deque(maxlen=KEPT)
"""Policies as they were given, with their checksums: whoever gives the same once more need not wait for that."""
_past: list[tuple[Snapshot, Snapshot]] = []
"""The last policy that was asked about by the law of past days, and the same compiled against that."""
_compiling = Lock()
"""One at a time, for any thread: who comes second finds what the first has made."""
_compilations = count(1)


def compiled(policy: Policy, revision: int = 0) -> Snapshot:
    """A policy compiled with the jurisdictions that gtm ships, by values as edges get them.

    Raises:
        PolicyError: it does not compile.
    """
    with _compiling:
        for given, sha256 in _given:
            if given is policy and sha256 in _kept:
                _kept.move_to_end(sha256)
                return _of_revision(_kept[sha256], revision)
    shipped = shipped_jurisdictions()
    try:
        message = SnapshotMessage.of(revision, 0.0, policy, shipped)
    except msgspec.MsgspecError:  # no policy that could be sent: the compiler says what is wrong with it
        return compile_policy(policy, shipped, revision=revision)
    found = compiled_message(message)
    with _compiling:
        _given.append((policy, message.sha256))
    return found


def compiled_message(message: SnapshotMessage) -> Snapshot:
    """A policy as edges are sent it, compiled.

    Raises:
        PolicyError: it does not compile.
    """
    with _compiling:
        found = _kept.get(message.sha256)
        if found is None:
            found = _kept[message.sha256] = message.compiled()
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
            _spare_collector()
        else:
            _kept.move_to_end(message.sha256)
    return _of_revision(found, message.revision)


def _of_revision(found: Snapshot, revision: int) -> Snapshot:
    return found if found.revision == revision else replace(found, revision=revision)


def with_history(snapshot: Snapshot) -> Snapshot:
    """A policy compiled anew, against the law of past days as well; the last one is kept.

    It holds for any day: rules are compiled for each of the periods between the moments at which the law changes.

    Raises:
        PolicyError: it does not compile any more.
    """
    with _compiling:
        if not _past or _past[0][0] is not snapshot:
            shipped = shipped_jurisdictions(history=True)
            _past[:] = [(snapshot, compile_policy(snapshot.policy, shipped, revision=snapshot.revision))]
            _spare_collector()
        return _past[0][1]


def _spare_collector() -> None:
    """Let the garbage collector no longer look through what is kept, which holds up all else meanwhile.

    It would every few seconds, for a third of a second at 10,000 rules. What is not kept any more goes all the same: it is in no
    cycles.
    """
    if next(_compilations) % COLLECT_EVERY == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()

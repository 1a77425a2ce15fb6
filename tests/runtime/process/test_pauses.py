"""What keeps the collector from holding up starts and answers."""

from __future__ import annotations

import gc
import weakref

import pytest

from gtm.runtime.process import pauses


class _Old:
    """What is there when a worker begins."""


def test_what_was_there_at_the_start_is_never_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked worker would write to all of its siblings' memory. Garbage of later goes, though not at once."""
    before = gc.get_threshold()
    old = _Old()
    try:
        pauses.spare_collector(1)
        assert not any(one is old for one in gc.get_objects())
        later = _Old()
        later.itself = later  # type: ignore[attr-defined] # a cycle
        gone = weakref.ref(later)
        del later
        pauses.spare_collector(pauses.COLLECT_EVERY)
        assert gone() is None
        assert not any(one is old for one in gc.get_objects())
        assert gc.get_threshold()[:2] == before[:2]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_no_garbage_is_looked_for_while_modules_are_loaded() -> None:
    """Nor afterwards among what they hold; and it is looked for again, however the loading ended."""
    with pauses.loading():
        assert not gc.isenabled()
        module = [object()]
    assert gc.isenabled()
    assert not any(one is module for one in gc.get_objects())
    with pytest.raises(ImportError), pauses.loading():
        raise ImportError
    assert gc.isenabled()

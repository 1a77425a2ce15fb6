"""What keeps the collector from holding up starts and answers."""

from __future__ import annotations

import gc

import pytest

from gtm.runtime.process import pauses


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

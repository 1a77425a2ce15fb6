"""The form of a refusal, by path and `Accept`."""

from __future__ import annotations

import pytest

from gtm.core.model.refusals import form_of
from tests.core.model.accepts import ACCEPTS


@pytest.mark.parametrize(("path", "accept", "media", "anthropics"), ACCEPTS)
def test_forms(path: str, accept: str, media: str, anthropics: bool) -> None:
    """The table that edges and balancers are held to, of the function that both call."""
    form = form_of(path.encode(), accept.encode())
    assert (form.media.decode(), form.anthropics) == (media, anthropics)

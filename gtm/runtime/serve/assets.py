"""Files that come with gtm: found in a checkout and in an installed package alike."""

from __future__ import annotations

from pathlib import Path

from gtm.core.model.values import Policy
from gtm.documents.folders import load_folder

_PACKAGE = Path(__file__).resolve().parent.parent.parent


def demo_folder() -> Path:
    """The demo policy's folder."""
    installed = _PACKAGE / "_policies" / "demo"
    return installed if installed.is_dir() else _PACKAGE.parent / "policies" / "demo"


def demo_policy() -> Policy:
    """The demo policy, as shipped."""
    return load_folder(demo_folder())

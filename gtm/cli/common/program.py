"""What this very program is called, for the commands that messages advise."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def program() -> str:
    """How this very program is called from the same directory: `gtm` if that finds it, else its path."""
    found = shutil.which("gtm")
    ours = Path(sys.argv[0])
    return "gtm" if found is not None and Path(found).resolve() == ours.resolve() else str(ours)

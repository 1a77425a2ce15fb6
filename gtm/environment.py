"""What child processes inherit of the environment: names on a list, since secrets arrive there too.

A process's first environment stays readable in /proc/PID/environ for as long as it lives, whatever it deletes of it later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TZDIR",
        "TMPDIR",
        "TERM",
        "COLUMNS",
        "NO_COLOR",
        "FORCE_COLOR",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NOTIFY_SOCKET",
    }
)
_PREFIXES = ("LC_", "PYTHON", "COVERAGE_", "MALLOC_")


def inherited(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What children may have: where programs and files are, language, allocator. Nothing of gtm's own."""
    given = os.environ if environment is None else environment
    return {name: value for name, value in given.items() if name in _NAMES or name.startswith(_PREFIXES)}

"""Real clients through `gtm balancer`, which stands before two unlike model servers: the table of docs/balancer.md.

python -m tests.drills.clients               # installs the clients outside of the repository first, at the versions that are written here; GTM_CLIENTS says where
python -m tests.drills.clients openai node   # these only
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.drills.clients.asked import CLIENTS, ask_all, install


def main(*names: str) -> int:
    """Print the table, and below it what was wrong."""
    install()
    wanted = [one for one in CLIENTS if not names or one.name in names]
    missing = [why for one in wanted if (why := one.missing())]
    with tempfile.TemporaryDirectory() as folder:
        found = ask_all(Path(folder), [one for one in wanted if not one.missing()])
    cases = list(dict.fromkeys(case for results in found.values() for case in results))
    print("| | " + " | ".join(f"{name} {CLIENTS_BY[name].version()}" for name in found) + " |")
    print("|---|" + "---|" * len(found))
    for case in cases:
        cells = (results[case].cell if case in results else "–" for results in found.values())
        print(f"| {case} | " + " | ".join(cells) + " |")
    wrong = [
        f"{name}, {case}: {result.wrong}"
        for name, results in found.items()
        for case, result in results.items()
        if result.wrong
    ]
    print("\n".join([*missing, *wrong]))
    return bool(wrong)


CLIENTS_BY = {one.name: one for one in CLIENTS}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

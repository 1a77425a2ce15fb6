"""What bytes from outside cost to read: a search, in each reader's own grammar, for the text that costs most for its length (`costs`).

python -m tests.drills.cost 500              # prints the table of docs/security.md, after so many tries for each reader
python -m tests.drills.cost 500 "gRPC"       # of the readers with that in their names
"""

from __future__ import annotations

import sys

from tests.drills import cost_balancer, cost_dns, cost_documents, cost_http
from tests.drills.costs import Reader, cost

READERS: tuple[Reader, ...] = (
    *cost_balancer.READERS,
    *cost_http.READERS,
    *cost_dns.READERS,
    *cost_documents.READERS,
)
"""Whatever reads what strangers send."""


def main(tries: int, named: str = "", seed: int = 1) -> None:
    """Print the table of docs/security.md."""
    print(
        "| reader | lines of Python a byte | bytes held a byte | exponent of processor time | read to the end | worst pattern |"
    )
    print("|---|---:|---:|---:|---:|---|")
    for reader in READERS:
        if named not in reader.name:
            continue
        found = cost(reader, tries, seed, times=True)
        print(
            f"| {reader.name} | {max(found.steps):.1f} ({reader.steps:g}) | {max(found.peak):.0f} ({reader.peak:g}) | "
            f"{found.exponent:.2f} | {found.read:.0%} | `{found.pattern!r}` |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, *sys.argv[2:3])

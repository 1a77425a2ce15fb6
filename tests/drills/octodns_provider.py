"""Runs in octoDNS's own environment: files in, its provider's records out, a line of JSON a file."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

from octodns.provider.yaml import YamlProvider  # type: ignore[import-not-found]
from octodns.zone import Zone  # type: ignore[import-not-found]


def records(path: str, zone: str) -> list[tuple[str, str, int, list[str], bool]]:
    """Names, types, TTLs, data in presentation form, and whether they are steered."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder, f"{zone}.yaml"))
        found = Zone(f"{zone}.", [])
        YamlProvider("x", folder, enforce_order=False, supports_root_ns=True).populate(found, lenient=True)
    made = []
    for record in found.records:
        steered = bool(getattr(record, "dynamic", None) or getattr(record, "geo", None))
        try:
            data = list(record.to_rrset().rdatas)
        except AttributeError:  # octoDNS 1.22.0 has no text of OPENPGPKEY
            data = [str(value) for value in getattr(record, "values", ())]
        made.append((record.fqdn, record._type, record.ttl, data, steered))  # noqa: SLF001 - octoDNS's interface
    return made


def main() -> None:
    """Argument: the zone. Standard input: a path a line."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        try:
            answer: object = records(line.strip(), sys.argv[1])
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""What the dashboard's pages load that others wrote: fetched from npm, checked, and kept under version control. `make vendor`.

Nothing of it is fetched by who installs, tests or runs gtm. Each package's archive is held against the SHA-512 that is written down here for its
version, and only the files named are taken, as they are. `VENDORED.json` beside them says what is there: name, version, licence, SHA-256 of each file.
A new version is a new line here, with its integrity as `npm view NAME@VERSION dist.integrity` says it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256, sha512
from pathlib import Path

HOME = Path(__file__).parent.parent.parent / "gtm" / "dashboard" / "static" / "vendor"
LIST = "VENDORED.json"


@dataclass(frozen=True, slots=True)
class Package:
    """One of npm's: which version, the SHA-512 of its archive as npm writes it, and which files are taken, by their names here."""

    name: str
    version: str
    integrity: str
    licence: str
    files: dict[str, str]


PACKAGES = (
    Package(
        "htmx.org",
        "2.0.11",
        "sha512-Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==",
        "0BSD",
        {"htmx.min.js": "dist/htmx.min.js", "htmx.LICENSE": "LICENSE"},
    ),
    Package(
        "idiomorph",
        "0.8.0",
        "sha512-R47JBL+6jHDQvcnbppIUtXXcxi5h6+wuCEEZXnRhUltsgzPFKzThL5PuHppP9ypJuy+7WawcY1TsSBD/iQbMhw==",
        "0BSD",
        {"idiomorph.min.js": "dist/idiomorph.min.js", "idiomorph.LICENSE": "LICENSE"},
    ),
    Package(
        "d3-array",
        "3.2.5",
        "sha512-Th8qGXoBalmWsstpkuhmBuTsBQIFqYOJtjlBvNVvBfJ8E3uYusBUwUR8HU20U0qKKQkgCvKyR1YjiozWadk5QA==",
        "ISC",
        {"d3-array.min.js": "dist/d3-array.min.js", "d3-array.LICENSE": "LICENSE"},
    ),
    Package(
        "d3-geo",
        "3.1.2",
        "sha512-5R8ZgDQorIxmauv7R6gpE/ndz+Z0qAZssigq0aXFdvPHdY41RqtW02jrRUQAL724NdPABYXo1+gQEGBBr7uKNg==",
        "ISC",
        {"d3-geo.min.js": "dist/d3-geo.min.js", "d3-geo.LICENSE": "LICENSE"},
    ),
    Package(
        "topojson-client",
        "3.1.0",
        "sha512-605uxS6bcYxGXw9qi62XyrV6Q3xwbndjachmNxu8HWTtVPxZfEJN9fd/SZS1Q54Sn2y0TMyMxFj/cJINqGHrKw==",
        "ISC",
        {"topojson-client.min.js": "dist/topojson-client.min.js", "topojson-client.LICENSE": "LICENSE"},
    ),
    Package(
        "world-atlas",
        "2.0.2",
        "sha512-IXfV0qwlKXpckz1FhwXVwKRjiIhOnWttOskm5CtxMsjgE/MXAYRHWJqgXOpM8IkcPBoXnyTU5lFHcYa5ChG0LQ==",
        "ISC",
        {"countries-110m.json": "countries-110m.json", "world-atlas.LICENSE": "LICENSE"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        "MIT",
        {
            "uplot.min.js": "dist/uPlot.iife.min.js",
            "uplot.min.css": "dist/uPlot.min.css",
            "uplot.LICENSE": "LICENSE",
        },
    ),
)


def main() -> int:
    """Fetch all, and write them down."""
    HOME.mkdir(parents=True, exist_ok=True)
    found, names = [], {LIST}
    with tempfile.TemporaryDirectory() as scratch:
        for package in PACKAGES:
            spec = f"{package.name}@{package.version}"
            subprocess.run(
                ["npm", "pack", "--silent", spec], cwd=scratch, check=True, stdout=subprocess.DEVNULL
            )
            (archive,) = Path(scratch).glob("*.tgz")
            whole = archive.read_bytes()
            integrity = "sha512-" + b64encode(sha512(whole).digest()).decode()
            if integrity != package.integrity:
                print(
                    f"{spec}: its archive is {integrity}, not {package.integrity}: nothing of it is taken",
                    file=sys.stderr,
                )
                return 1
            files = {}
            with tarfile.open(archive) as held:
                for name, inside in package.files.items():
                    member = held.extractfile(f"package/{inside}")
                    assert member is not None, f"{spec} has no {inside}"
                    data = member.read()
                    (HOME / name).write_bytes(data)
                    files[name] = {"from": inside, "sha256": sha256(data).hexdigest(), "bytes": len(data)}
            archive.unlink()
            names |= files.keys()
            found.append(
                {
                    "name": package.name,
                    "version": package.version,
                    "licence": package.licence,
                    "integrity": package.integrity,
                    "files": files,
                }
            )
    for path in HOME.iterdir():
        if path.name not in names:
            path.unlink()
    (HOME / LIST).write_text(json.dumps(found, indent=2) + "\n")
    print(f"{len(names) - 1} files of {len(found)} packages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

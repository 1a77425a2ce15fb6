"""The last step of an image's environment: leave out what only built it, compile the rest, and say what is in it.

What is in it is a list in CycloneDX's form, `sbom.cdx.json` in the environment: gtm, each distribution with its licence, Python, and
Debian's packages of the base. It has neither a serial number nor a time, so that the same image has the same list.
"""

from __future__ import annotations

import compileall
import json
import platform
import py_compile
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

BUILDERS = ("editables", "hatchling", "pathspec", "pluggy", "trove-classifiers")
"""What nothing needs but the building of gtm (the group `build` of pyproject.toml, and what that needs)."""
OURS = "gtm-service"
STATUS = Path("/var/lib/dpkg/status")
"""What Debian has installed, a paragraph each."""


def main() -> None:
    """Finish the environment that runs this."""
    subprocess.run(
        [sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *BUILDERS, "pip"], check=True
    )
    packages = Path(sysconfig.get_path("purelib"))
    # Unchecked: nothing changes in an image, and files whose times a builder sets anew would all be compiled at each start.
    compiled = compileall.compile_dir(
        packages, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    if not compiled:
        sys.exit("a module cannot be compiled")
    status = STATUS.read_text() if STATUS.exists() else ""
    listed = bill([*distributions(path=[str(packages)])], status)
    Path(sys.prefix, "sbom.cdx.json").write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")


def bill(found: list[Distribution], status: str) -> dict[str, Any]:
    """What an image holds.

    Args:
        found: distributions of Python; gtm's is one of them.
        status: Debian's packages, as dpkg keeps them.
    """
    named = {_name(one): one for one in found}
    ours = named.pop(OURS)
    python = {"type": "application", "name": "python", "version": platform.python_version()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_distribution(ours), "type": "application"}},
        "components": [python, *(_distribution(named[name]) for name in sorted(named)), *_debian(status)],
    }


def _name(one: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()


def _distribution(one: Distribution) -> dict[str, Any]:
    name = _name(one)
    purl = f"pkg:pypi/{name}@{quote(one.version)}"
    said = one.metadata.get("License-Expression")
    return {
        "type": "library",
        "name": name,
        "version": one.version,
        "purl": purl,
        "bom-ref": purl,
        **({"licenses": [{"expression": said}]} if said else {}),
    }


def _debian(status: str) -> list[dict[str, Any]]:
    packages = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") != "install ok installed":
            continue
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}"
        packages.append({"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl})
    return sorted(packages, key=lambda one: str(one["name"]))


if __name__ == "__main__":
    main()

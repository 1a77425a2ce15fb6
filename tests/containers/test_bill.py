"""The list of what is in an image (`deploy/container/finish.py`), and what an image is built of."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

CONTAINER = Path(__file__).parents[2] / "deploy" / "container"
STATUS = """\
Package: zlib1g
Status: install ok installed
Architecture: amd64
Version: 1:1.3.1+b1
Description: compression library
 Version: none

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def finish() -> ModuleType:
    """The module, which stands in no package."""
    spec = importlib.util.spec_from_file_location("finish", CONTAINER / "finish.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_list_has_all_there_is() -> None:
    """Every distribution and every installed package once, in an order that does not change; gtm is what it is the list of."""
    module = finish()
    found = [*distributions()]
    listed = module.bill(found, STATUS)
    assert listed["metadata"]["component"]["name"] == "gtm-service"
    names = [one["name"] for one in listed["components"]]
    assert {"python", "psycopg", "zlib1g"} <= {*names}
    assert "gone" not in names
    assert listed["components"][-1]["purl"] == "pkg:deb/debian/zlib1g@1%3A1.3.1%2Bb1?arch=amd64"
    assert listed == module.bill(found[::-1], STATUS)


def test_what_an_image_copies_is_let_into_the_build() -> None:
    """What the Containerfile copies is there, and the list of what a build may see has it, and nothing else."""
    text = (CONTAINER / "Containerfile").read_text()
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    }
    seen = (CONTAINER / "Containerfile.dockerignore").read_text()
    assert copied == set(re.findall(r"^!(.+)$", seen, re.MULTILINE))
    assert all((CONTAINER.parents[1] / source).exists() for source in copied)

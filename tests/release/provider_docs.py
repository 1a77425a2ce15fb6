"""Writes the provider's documentation anew, by terraform-plugin-docs, from its schema and its examples (`make provider-docs`; needs Go and Terraform)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.release.provider import HERE, SOURCES, build

GENERATOR = "github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs@v0.24.0"
ROOT = 'terraform {\n  required_providers {\n    gtm = { source = "gtm/gtm" }\n  }\n}\n'


def schema(provider: Path, folder: Path) -> bytes:
    """What a provider's program says of itself, as `terraform providers schema -json` tells it.

    Args:
        provider: the folder with the program.
        folder: an empty one.
    """
    settings = folder / "terraformrc"
    settings.write_text(
        f'provider_installation {{\n  dev_overrides {{ "gtm/gtm" = "{provider}" }}\n  direct {{}}\n}}\n'
    )
    (folder / "main.tf").write_text(ROOT)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TF_CLI_CONFIG_FILE": str(settings),
        "CHECKPOINT_DISABLE": "1",
    }
    terraform = shutil.which("terraform") or "terraform"
    done = subprocess.run(
        [terraform, "providers", "schema", "-json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=True,
    )
    return done.stdout


def main() -> None:
    """Build, ask, write."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "root").mkdir()
        program = folder / "bin" / "terraform-provider-gtm"
        build(program, HERE)
        told = json.loads(schema(folder / "bin", folder / "root"))
        # The generator looks for providers of one namespace alone.
        told["provider_schemas"] = {
            "registry.terraform.io/hashicorp/gtm": next(iter(told["provider_schemas"].values()))
        }
        (folder / "schema.json").write_text(json.dumps(told))
        names = ("--provider-name", "gtm", "--rendered-provider-name", "gtm")
        command = [
            go,
            "run",
            GENERATOR,
            "generate",
            *names,
            "--providers-schema",
            str(folder / "schema.json"),
        ]
        subprocess.run(command, cwd=SOURCES, check=True)


if __name__ == "__main__":
    main()

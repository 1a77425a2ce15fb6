"""Holds the Helm chart against its schema of values and against Kubernetes' own of what it makes: `make chart` (needs Go).

Helm and kubeconform are Go modules, and are built once; Go keeps what it compiled.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.containers.schemas import FOLDER, RELEASE
from tests.go_programs import build

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "gtm"
CASES = tuple(sorted(Path(__file__).with_name("values").glob("*.yaml")))
"""Values to hold the chart with."""
_PROGRAMS = ROOT / "build" / "chart"


def helm() -> Path:
    """Helm, built if need be."""
    return build("helm.sh/helm/v3", "v3.22.0", "./cmd/helm", _PROGRAMS / "helm")


def kubeconform() -> Path:
    """Kubeconform, built if need be."""
    return build("github.com/yannh/kubeconform", "v0.8.0", "./cmd/kubeconform", _PROGRAMS / "kubeconform")


def rendered(case: Path) -> str:
    """The chart's objects.

    Args:
        case: values.

    Raises:
        subprocess.CalledProcessError: they are refused; `stderr` says why.
    """
    command = [helm(), "template", "gtm", CHART, "--kube-version", RELEASE, "--values", case]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Lint and render each case, and ask of each object whether Kubernetes has such a kind with such fields."""
    location = f"{FOLDER}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    check = [kubeconform(), "-strict", "-summary", "-schema-location", location]
    for case in CASES:
        print(f"{case.name}:", flush=True)
        subprocess.run(
            [helm(), "lint", "--strict", "--quiet", "--kube-version", RELEASE, "--values", case, CHART],
            check=True,
        )
        subprocess.run(check, input=rendered(case), text=True, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

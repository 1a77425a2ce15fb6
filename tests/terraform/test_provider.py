"""The provider's own tests, in Go: with TF_ACC before a real control tier, by the real terraform, and by OpenTofu."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.terraform.conftest import DEPLOYED, Control, programs, registry
from tests.tools import tool


@programs
@pytest.mark.drill
def test_the_provider_accepts(program: str, control: Control) -> None:
    """Acceptance tests of `deploy/terraform/provider/internal/provider`."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TF_")},
        **control.environment(),
        "TF_ACC": "1",
        "TF_ACC_TERRAFORM_PATH": program,
        "TF_ACC_PROVIDER_HOST": registry(program),
        "CHECKPOINT_DISABLE": "1",
    }
    done = subprocess.run(
        [tool("go"), "test", "-count=1", "-parallel=4", "-run", "^TestAcc", "./internal/provider"],
        cwd=DEPLOYED / "provider",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""The provider's own tests, in Go: with TF_ACC before a real control tier, by the real terraform."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.terraform.conftest import DEPLOYED, Control
from tests.tools import tool


@pytest.mark.drill
@pytest.mark.parametrize("tests", ["^TestAcc"])
def test_the_provider_accepts(tests: str, control: Control) -> None:
    """Acceptance tests of `deploy/terraform/provider/internal/provider`."""
    environment = {
        **os.environ,
        **control.environment(),
        "TF_ACC": "1",
        "TF_ACC_TERRAFORM_PATH": tool("terraform"),
        "CHECKPOINT_DISABLE": "1",
    }
    done = subprocess.run(
        [tool("go"), "test", "-count=1", "-parallel=4", "-run", tests, "./internal/provider"],
        cwd=DEPLOYED / "provider",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr

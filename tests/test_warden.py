"""Whom the warden of a run of tests ends, and whom it spares (`tests/system/test_interrupted.py` has whole runs)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.warden import end


def test_only_what_belongs_to_a_run_is_ended(tmp_path: Path) -> None:
    """Marked, at work in the run's directory, or naming it; not in another's whose name begins alike."""
    ours, other = tmp_path / "run-1", tmp_path / "run-12"
    for directory in (ours, other):
        (directory / "below").mkdir(parents=True)
    plain = {"PATH": os.environ["PATH"]}

    def start(directory: Path, named: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = ["sh", "-c", "sleep 600; :", f"--data-dir={named}/data"]
        return subprocess.Popen(command, cwd=directory, env=environment, start_new_session=True)

    run = [
        start(Path("/"), Path("/"), plain | {"PYTHON_RUN_1": "1"}),
        start(ours / "below", Path("/"), plain),
        start(ours, Path("/"), plain),
        start(Path("/"), ours, plain),
    ]
    spared = [
        start(Path("/"), Path("/"), plain | {"PYTHON_RUN_12": "1", "PYTHON": "PYTHON_RUN_1=1"}),
        start(other, other, plain),
    ]
    try:
        end("PYTHON_RUN_1", [ours])
        # By the signal, or of itself when its `sleep` was told first; it would go on for ten minutes else.
        assert [process.wait(60) in (0, -15, -9) for process in run] == [True] * len(run)
        assert [process.poll() for process in spared] == [None, None]
    finally:
        end("PYTHON_RUN_12", [other])
        for process in (*run, *spared):
            process.kill()
            process.wait()

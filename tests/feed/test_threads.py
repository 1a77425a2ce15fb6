"""Policies are first read by several threads at once, in processes that have read none: none of these crashes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys, threading
import msgspec
from gtm.core.model.policy import Policy
{module}
sys.setswitchinterval(1e-6)
document = msgspec.json.encode(Policy())

def first(gate):
    gate.wait()
    {read}

for _ in range(30):
    child = os.fork()
    if child == 0:
        gate = threading.Barrier(3)
        threads = [threading.Thread(target=first, args=(gate,)) for _ in range(3)]
        for one in threads: one.start()
        for one in threads: one.join()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"a process ended with signal {{os.WTERMSIG(status)}}")
"""
READERS = {
    "rows": (
        "from gtm.storage import documents",
        "documents.from_document(msgspec.json.decode(document), Policy)",
    ),
    "snapshots": ("from gtm.feed.wire import SnapshotMessage", "SnapshotMessage.of(1, 0.0, Policy(), ())"),
}


@pytest.mark.parametrize("how", READERS)
def test_a_type_is_described_before_threads_read_it(how: str) -> None:
    """Before there were decoders at module level, a third of these processes crashed in msgspec 0.22."""
    module, read = READERS[how]
    program = [sys.executable, "-c", _PROGRAM.format(module=module, read=read)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

"""A log directory belongs to one broker process at a time, of Penstock or of Apache Kafka (LOG-2)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from brokers.engine.storage.directories import LOCK_FILE, DirectoryRefused, LogRoot

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.{kind}(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_a_directory_locked_by_another_process_is_refused_until_that_process_ends(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", HOLD.format(kind=kind), str(tmp_path / LOCK_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryRefused, match="in use by another broker process"):
            LogRoot(tmp_path).lock_and_claim(1, "cluster")
        other.communicate("")
    root = LogRoot(tmp_path)
    root.lock_and_claim(1, "cluster")
    root.unlock()

"""The report of the CPU time of a run's modules (`tests/testkit/costs.py`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from config.environment import BASE_DIR
from tests.testkit import costs

SPENDS = """
import subprocess, sys, time

SPIN = "import time\\nwhile time.process_time() < 0.7: pass"

def test_in_a_process_of_its_own():
    subprocess.run([sys.executable, "-c", SPIN], check=True)

def test_waits():
    time.sleep(0.7)
"""


def test_the_report_counts_the_time_of_a_test_and_its_processes_and_no_waiting(tmp_path: Path) -> None:
    (tmp_path / "test_spending.py").write_text(SPENDS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:django",
         "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "ignore", "-n", "1", "-p", "tests.testkit.costs",
         str(tmp_path / "test_spending.py")],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {costs.SWITCH: "1"},
    )  # fmt: skip
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
    (said,) = re.findall(r"(\d+\.\d) test_spending.py::test_in_a_process_of_its_own", ran.stdout)
    assert float(said) >= 0.6
    assert "test_waits" not in ran.stdout
    assert "a process, of them until all was collected" in ran.stdout

"""Environment of a test that is tried a second time (decision 78, `tests/testkit/sharing.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAILS_ONCE = """
import pytest

MADE = []

@pytest.fixture(scope="session")
def dear():
    MADE.append("dear")

@pytest.fixture(scope="module")
def cluster(dear):
    topics = set()
    MADE.append("cluster")
    yield topics
    MADE.append("gone")

def test_before(cluster):
    pass

def test_that_makes_a_topic(cluster):
    assert "orders" not in cluster, "the topic of the first attempt"
    cluster.add("orders")
    assert MADE.count("cluster") == 2, "the first attempt fails"

def test_after(cluster):
    assert MADE == ["dear", "cluster", "gone", "cluster"]
"""


def test_a_second_attempt_has_a_cluster_of_its_own_and_keeps_what_the_session_shares(tmp_path: Path) -> None:
    (tmp_path / "test_once.py").write_text(FAILS_ONCE)
    options = [
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:django",
        "--max-suite-reruns",
        "1",
        "-W",
        "ignore",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), *options,
         "-p", "tests.testkit.sharing", str(tmp_path / "test_once.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed, 1 rerun" in ran.stdout, ran.stdout

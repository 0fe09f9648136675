"""Lower priority of a program with its whole session (decision 82)."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from config.embedded.niceness import SESSION_FILE, lower_priority
from config.embedded.process import Child, wait_until
from config.supervisor import programs
from config.supervisor.state import StateDirectory

STARTER = """
import signal, subprocess, sys
inner = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("started", inner.pid, flush=True)
signal.pause()
"""


def test_a_grandchild_inherits_the_niceness(tmp_path: Path) -> None:
    """Spark's Java machine is such a grandchild."""
    child = Child(
        name="child",
        command=(sys.executable, "-c", STARTER),
        log_file=tmp_path / "log",
        before_exec=partial(lower_priority, 7),
    )
    child.start()
    try:
        wait_until(lambda: "started" in child.log_tail(), child=child, timeout_s=60)
        inner = int(child.log_tail().split()[1])
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, inner) == min(19, mine + 7)
        if SESSION_FILE.exists():
            assert Path(f"/proc/{inner}/autogroup").read_text().endswith("nice 7\n")
            assert not SESSION_FILE.read_text().endswith("nice 7\n"), "the session that started it"
    finally:
        child.stop()


def test_only_the_pipeline_of_usage_gives_way(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    made = [
        programs.web(state, {}, http_port=1),
        programs.worker(state, {}),
        programs.pipeline(state, {}),
        programs.agent(state, {}, host="here"),
    ]
    assert [child.name for child in made if child.before_exec is not None] == ["pipeline"]


@pytest.mark.skipif(not SESSION_FILE.exists(), reason="this kernel does not group processes by session")
def test_a_process_that_leads_no_session_leaves_the_niceness_of_the_session_alone(tmp_path: Path) -> None:
    code = (
        "import os; from config.embedded.niceness import SESSION_FILE, lower_priority;"
        "before = SESSION_FILE.read_text();"
        "lower_priority(3); assert os.getpriority(os.PRIO_PROCESS, 0) >= 3; assert SESSION_FILE.read_text() == before"
    )
    child = Child(
        name="child",
        command=(
            sys.executable,
            "-c",
            f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {code!r}]))",
        ),
        log_file=tmp_path / "log",
        directory=Path(__file__).resolve().parents[3],
    )
    child.start()
    assert child.process is not None
    assert child.process.wait(60) == 0, child.log_tail()

"""Stops of a product, by signal, by `down` and by SIGKILL, and the start after each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from config.environment import BASE_DIR
from tests.testkit.stack import Stack, environment, make_stack
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]


def down(product: Stack) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BASE_DIR / "manage.py"), "down", "--state-dir", str(product.state_dir)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=90, check=False)


def test_killed_stopped_and_started_again_it_is_the_same_product(tmp_path: Path) -> None:
    product = make_stack(tmp_path, brokers=1)
    first = product.start()
    process = product.process
    assert process is not None
    assert len(product.processes()) > 6

    process.kill()
    process.wait()
    eventually(lambda: not product.processes(), within_s=25, what="orphans to end after SIGKILL of the supervisor")

    again = product.start()
    assert again == first

    stopped = down(product)
    assert stopped.returncode == 0, stopped.stderr
    assert product.process is not None
    assert product.process.wait(5) == 0
    assert not product.processes()
    assert not product.ready_file.exists()

    nothing = down(product)
    assert nothing.returncode == 0
    assert "Nothing runs" in nothing.stdout

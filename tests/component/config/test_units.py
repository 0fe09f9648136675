"""The command `units`, with systemd's own check of its output."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from config.environment import BASE_DIR

ANALYZE = shutil.which("systemd-analyze")
# Of systemd's scale from 0 (closed) to 100: what programs that speak TCP and run as a user of their own can reach.
EXPOSURE_MAX = 20


def units(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "units", *words], cwd=BASE_DIR, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip


@pytest.mark.skipif(ANALYZE is None, reason="this machine has no systemd-analyze")
@pytest.mark.parametrize(("roles", "count"), [((), 4), (("--roles", "agent-with-database"), 1)])
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path, roles: tuple[str, ...], count: int) -> None:
    done = units("--format", "systemd", "--output", str(tmp_path), "--data-dir", "/srv/disk1", *roles)
    assert done.returncode == 0, done.stderr
    services = sorted(map(str, tmp_path.glob("*.service")))
    assert len(services) == count
    assert done.stdout.split() == [str(path) for path in map(Path, done.stdout.split()) if path.is_file()]
    checked = subprocess.run([str(ANALYZE), "verify", *services], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    secure = subprocess.run(
        [str(ANALYZE), "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", *services],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert secure.returncode == 0, secure.stdout + secure.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "systemd", "--roles", "web,broker"], "'broker' is no role"),
        (["--format", "compose", "--code", "opt/penstock"], "no absolute path"),
        (["--format", "systemd", "--data-dir", "/disk 1"], "no absolute path"),
        (["--format", "systemd", "--user", "penstock\nUser=root"], "--user"),
        (["--format", "nomad"], "invalid choice"),
        (["--format", "systemd", "--roles", "agent,agent-with-database"], "a machine has one agent"),
    ],
)
def test_options_that_would_not_work_are_refused(words: list[str], said: str) -> None:
    done = units(*words)
    assert done.returncode != 0
    assert said in done.stderr


def test_printed_units_are_those_of_the_roles_that_were_asked_for() -> None:
    printed = units("--format", "kubernetes", "--roles", "web").stdout
    assert "penstock-web" in printed
    assert "penstock-agent" not in printed

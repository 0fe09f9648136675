"""Continuous integration fails when anything that it runs fails."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from config.environment import BASE_DIR


@pytest.mark.parametrize("broken", ["setup-dev", "check", "test", "test-native", ""])
def test_it_ends_with_the_first_that_fails(tmp_path: Path, broken: str) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(BASE_DIR / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / ".native").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("chromium", "kcat", "fc-list", "make", "python"):
        program = programs / name
        says = (
            "echo Noto Sans CJK; echo Inter"
            if name == "fc-list"
            else f'echo "$@" >>{tmp_path}/said; test "$1" != "{broken}"'
        )
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(programs)
    ended = subprocess.run(
        [tmp_path / ".ci/run"], check=False, timeout=30, env={"PATH": f"{programs}:/usr/bin:/bin"}, capture_output=True
    )
    assert (ended.returncode != 0) == bool(broken)
    goals = [line for line in (tmp_path / "said").read_text().splitlines() if not line.startswith("-m")]
    everything = ["setup-dev", "check", "test", "test-native"]
    assert goals == everything[: everything.index(broken) + 1 if broken else None]

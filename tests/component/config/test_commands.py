"""The help of `manage.py`: its list of commands, and the text of each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from config.environment import BASE_DIR


def said(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), *words], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_help_lists_the_commands_that_start_and_stop_the_product() -> None:
    assert {"up", "down", "agent"} <= {line.strip() for line in said("help").splitlines()}


@pytest.mark.parametrize(("name", "flag"), [("up", "--ready-file"), ("down", "--state-dir")])
def test_help_of_a_command_says_what_the_command_itself_says(name: str, flag: str) -> None:
    assert flag in said("help", name)
    assert said("help", name) == said(name, "--help")

"""One version in all places that say it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from brokers.contract.version import VERSION
from config.environment import BASE_DIR


def test_code_package_and_changelog_say_the_same_version() -> None:
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    released = re.findall(r"^## (\d+\.\d+\.\d+)", (BASE_DIR / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert project["version"] == released[0] == VERSION


def test_the_command_line_says_the_version() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "--version"], cwd=BASE_DIR, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith(f"Penstock {VERSION}\n")

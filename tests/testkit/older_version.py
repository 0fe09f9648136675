"""Source tree of an older commit, from which an upgrade starts.

The commit is, in this order: `PENSTOCK_UPGRADE_FROM`; the newest tag that HEAD descends from; the commit that last
changed `VERSION` in `brokers/contract/version.py`.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

from config.environment import BASE_DIR

UPGRADE_FROM: Final = "PENSTOCK_UPGRADE_FROM"
VERSION_FILE: Final = "brokers/contract/version.py"
VERSION_LINE: Final = r"^VERSION: Final = "
GIT_TIMEOUT_S: Final = 60


def older_commit() -> str:
    """Returns the hash of the commit. Skips the test if the history does not have it (a shallow clone, an archive)."""
    requested = os.environ.get(UPGRADE_FROM)
    if requested:
        return _commit(requested) or pytest.fail(f"{UPGRADE_FROM} names no commit here: {requested}")
    tag = _git("describe", "--tags", "--abbrev=0", "HEAD")
    revision = tag or _git("log", "-1", "--format=%H", "-G", VERSION_LINE, "--", VERSION_FILE)
    return _commit(revision) or pytest.skip("git has no older version here: clone with history, or fetch tags")


def older_tree(home: Path) -> Path:
    """Extracts the older commit into a new folder of `home`, and returns the folder."""
    commit = older_commit()
    archive, tree = home / "older.tar", home / f"penstock-{commit[:8]}"
    tree.mkdir(parents=True)
    with archive.open("wb") as file:
        subprocess.run(["git", "archive", commit], cwd=BASE_DIR, stdout=file, check=True, timeout=GIT_TIMEOUT_S)
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    archive.unlink()
    return tree


def _commit(name: str) -> str:
    return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") if name else ""


def _git(*arguments: str) -> str:
    """Returns the output of a git command; empty if it fails."""
    try:
        process = subprocess.run(
            ["git", *arguments], cwd=BASE_DIR, capture_output=True, text=True, check=False, timeout=GIT_TIMEOUT_S
        )
    except OSError:
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""

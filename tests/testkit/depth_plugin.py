"""Pytest plugin for the depth of a run (`tests/testkit/depth.py`): it selects tests and prints what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from tests.testkit import depth, rotation


def _is_left_out(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("long")
    return mark is not None and not depth.LONG and not depth.is_changed(mark.args)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skips the import of modules that run on another day: imports were a third of a run."""
    is_left_out = rotation.is_on() and collection_path.suffix == ".py" and not rotation.runs_today(collection_path)
    return True if is_left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves tests marked `long` to `make test-long`, unless the code that they check has changed."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


def pytest_report_header() -> list[str]:
    """Prints the depth before the first test."""
    return [depth.describe(), *([rotation.describe()] if rotation.is_on() else ())]


def pytest_terminal_summary(terminalreporter: TerminalReporter, exitstatus: int) -> None:
    """Prints at the end how to repeat failures, and which tests were tried twice."""
    if exitstatus:
        terminalreporter.write_line(depth.describe())
    for name in sorted({report.nodeid for report in terminalreporter.stats.get("rerun", ())}):
        terminalreporter.write_line(f"tried again because it failed once, to be listed in docs/HACKING.md: {name}")

"""What the depth of a run (`tests/testkit/depth.py`) means for which tests run, and what a run prints of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from tests.testkit import depth, rotation


def _is_left_out(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("long")
    return mark is not None and not depth.LONG and not depth.is_changed(mark.args)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules that run on another day are not even imported: a third of a run was imports."""
    is_left_out = rotation.is_on() and collection_path.suffix == ".py" and not rotation.runs_today(collection_path)
    return True if is_left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `long` are left to `make test-long`, unless what they check has changed."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


def pytest_report_header() -> list[str]:
    """Before the first test."""
    return [depth.describe(), *([rotation.describe()] if rotation.is_on() else ())]


def pytest_terminal_summary(terminalreporter: TerminalReporter, exitstatus: int) -> None:
    """At the end, where it is read: how to repeat what failed, and what was tried twice."""
    if exitstatus:
        terminalreporter.write_line(depth.describe())
    for name in sorted({report.nodeid for report in terminalreporter.stats.get("rerun", ())}):
        terminalreporter.write_line(f"tried again because it failed once, to be listed in docs/HACKING.md: {name}")

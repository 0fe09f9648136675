"""What the modules of a run cost in seconds of the processor, printed at its end where PENSTOCK_TESTS_COSTS=1: of the
test process and of everything that it started. The clock on the wall says how busy the machine is as well.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

import psutil
import pytest
from _pytest.terminal import TerminalReporter

SWITCH: Final = "PENSTOCK_TESTS_COSTS"
PROPERTY: Final = "cpu_s"
SHOWN: Final = 60
# Below it a module is only in the sum of its folder.
FROM_S: Final = 0.5


def spent_s() -> float:
    """By this process and its descendants, those that have ended included."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            used = child.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


class Costs:
    """In a process that runs tests it measures each; in the one that prints, it adds up what the reports say."""

    def __init__(self) -> None:
        self.by_module: dict[str, float] = defaultdict(float)
        self.tests: dict[str, float] = {}
        self.processes: list[tuple[float, float]] = []
        self._before_s = 0.0
        self._collected_s = 0.0

    def pytest_collection_finish(self) -> None:
        self._collected_s = time.process_time()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self._before_s = self._before_s or spent_s()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """All from the end of the test before: fixtures of the module that ended are in it."""
        if call.when == "teardown":
            now_s = spent_s()
            item.user_properties.append((PROPERTY, now_s - self._before_s))
            self._before_s = now_s
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            cost_s = sum(float(str(value)) for name, value in report.user_properties if name == PROPERTY)
            self.by_module[report.nodeid.partition("::")[0]] += cost_s
            self.tests[report.nodeid] = cost_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[PROPERTY] = (self._collected_s, spent_s())
        else:  # what the processes that run tests have spent, they have said themselves
            self.processes.append((self._collected_s, time.process_time() if self.processes else spent_s()))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.processes.append(tuple(getattr(node, "workeroutput", {}).get(PROPERTY, (0.0, 0.0))))

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        folders: dict[str, float] = defaultdict(float)
        for module, cost_s in self.by_module.items():
            folders[str(PurePosixPath(module).parent)] += cost_s
        terminalreporter.section("seconds of the processor")
        for collected_s, total_s in self.processes:
            terminalreporter.write_line(f"{total_s:8.1f} a process, of them until all was collected {collected_s:.1f}")
        for what in (folders, self.by_module, self.tests):
            for name, cost_s in sorted(what.items(), key=lambda pair: -pair[1])[:SHOWN]:
                if cost_s >= FROM_S:
                    terminalreporter.write_line(f"{cost_s:8.1f} {name}")
            terminalreporter.write_line("")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(SWITCH) == "1":
        config.pluginmanager.register(Costs(), "costs")

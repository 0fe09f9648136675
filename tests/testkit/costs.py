"""CPU seconds of the modules of a run, printed at its end if PENSTOCK_TESTS_COSTS=1: those of the test process and of
everything that it started. Wall time would include other load of the machine.
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
# Modules that cost less are only part of the sum of their folder.
FROM_S: Final = 0.5


def cpu_s() -> float:
    """Returns the CPU seconds of this process and its descendants, including ended ones."""
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
    """Plugin that measures each test in a worker, and sums up the reports in the printing process."""

    def __init__(self) -> None:
        self.cost_s_by_module: dict[str, float] = defaultdict(float)
        self.cost_s_by_test: dict[str, float] = {}
        self.process_times_s: list[tuple[float, float]] = []
        self._before_s = 0.0
        self._collected_s = 0.0

    def pytest_collection_finish(self) -> None:
        self._collected_s = time.process_time()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self._before_s = self._before_s or cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Attributes the time since the end of the last test, including its module's fixtures."""
        if call.when == "teardown":
            now_s = cpu_s()
            item.user_properties.append((PROPERTY, now_s - self._before_s))
            self._before_s = now_s
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            cost_s = sum(float(str(value)) for name, value in report.user_properties if name == PROPERTY)
            self.cost_s_by_module[report.nodeid.partition("::")[0]] += cost_s
            self.cost_s_by_test[report.nodeid] = cost_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[PROPERTY] = (self._collected_s, cpu_s())
        else:  # worker processes have reported their own times
            self.process_times_s.append((self._collected_s, time.process_time() if self.process_times_s else cpu_s()))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.process_times_s.append(tuple(getattr(node, "workeroutput", {}).get(PROPERTY, (0.0, 0.0))))

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        cost_s_by_folder: dict[str, float] = defaultdict(float)
        for module, cost_s in self.cost_s_by_module.items():
            cost_s_by_folder[str(PurePosixPath(module).parent)] += cost_s
        terminalreporter.section("seconds of the processor")
        for collected_s, total_s in self.process_times_s:
            terminalreporter.write_line(f"{total_s:8.1f} a process, of them until all was collected {collected_s:.1f}")
        for costs_s in (cost_s_by_folder, self.cost_s_by_module, self.cost_s_by_test):
            for name, cost_s in sorted(costs_s.items(), key=lambda pair: -pair[1])[:SHOWN]:
                if cost_s >= FROM_S:
                    terminalreporter.write_line(f"{cost_s:8.1f} {name}")
            terminalreporter.write_line("")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(SWITCH) == "1":
        config.pluginmanager.register(Costs(), "costs")

"""Use of processors between two measurements."""

from __future__ import annotations

import pytest

from brokers.agent.machine import CpuTimes, MachineMeter, busy_percent


@pytest.mark.parametrize(
    ("total_s", "idle_s", "percent"),
    [(10.0, 10.0, 0), (10.0, 0.0, 100), (8.0, 5.0, 38), (0.5, 0.0, None), (0.0, 0.0, None), (10.0, 12.0, 0)],
)
def test_the_busy_part_of_the_time_is_counted(total_s: float, idle_s: float, percent: int | None) -> None:
    before = CpuTimes(1_000.0, 700.0)
    assert busy_percent(before, CpuTimes(1_000.0 + total_s, 700.0 + idle_s)) == percent


def test_a_meter_knows_the_use_of_processors_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = MachineMeter()
    assert meter.measure()["cpu_percent"] is None
    now = CpuTimes.now()
    later = CpuTimes(now.total_s + 100.0, now.idle_s + 75.0)
    monkeypatch.setattr(CpuTimes, "now", classmethod(lambda cls: later))
    assert meter.measure()["cpu_percent"] in range(20, 30)
    # Measured again at once, it is what it was.
    assert meter.measure()["cpu_percent"] in range(20, 30)

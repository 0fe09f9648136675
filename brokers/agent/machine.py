"""Measurement of the use of a host's processors and memory."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psutil

# Measurements over less processor time are too inaccurate: the previous result is returned.
MEASURED_CPU_S_MIN: Final = 1.0


class CpuTimes(NamedTuple):
    """Seconds that all processors of a machine have spent since its start."""

    total_s: float
    idle_s: float

    @classmethod
    def now(cls) -> CpuTimes:
        times = psutil.cpu_times()._asdict()
        # Time of guests is part of the time of users.
        guests_s = times.get("guest", 0.0) + times.get("guest_nice", 0.0)
        return cls(sum(times.values()) - guests_s, times["idle"] + times.get("iowait", 0.0))


def busy_percent(earlier: CpuTimes, later: CpuTimes) -> int | None:
    """Returns the percentage of the processors' time that was used; None if hardly any time has passed."""
    total_s = later.total_s - earlier.total_s
    if total_s < MEASURED_CPU_S_MIN:
        return None
    busy_s = total_s - (later.idle_s - earlier.idle_s)
    return round(100 * min(1.0, max(0.0, busy_s / total_s)))


class MachineMeter:
    """Measures the use of processors (between two calls; None at first) and memory of a machine.

    In a container it measures the whole machine, not the share of the container.
    """

    def __init__(self) -> None:
        self._previous_times = CpuTimes.now()
        self._cpu_percent: int | None = None

    def measure(self) -> dict[str, Any]:
        """Returns the fields of `Host.machine`. Raises `OSError` if the system does not report them."""
        times = CpuTimes.now()
        percent = busy_percent(self._previous_times, times)
        if percent is not None:
            self._previous_times, self._cpu_percent = times, percent
        memory = psutil.virtual_memory()
        return {
            "cpus": psutil.cpu_count() or 0,
            "cpu_percent": self._cpu_percent,
            "memory_bytes": memory.total,
            "memory_available_bytes": memory.available,
        }

"""Decision whether a broker's process is to be started or stopped, from wanted and observed state. Pure: the clock is a
parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from brokers.limits import AGENT_BACKOFF_MAX_S, AGENT_BACKOFF_MIN_S, AGENT_STABLE_AFTER_S


class ProcessAction(StrEnum):
    NOTHING = "nothing"
    START = "start"
    STOP = "stop"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProcess:
    """Observed state of one broker; instants in monotonic seconds."""

    is_wanted: bool
    is_running: bool
    wanted_restarts: int
    done_restarts: int
    failures: int = 0
    ended_at_s: float = 0.0


def decide(process: ObservedProcess, now_s: float) -> ProcessAction:
    """Returns the action that is due. A process whose restart was requested is stopped; the next call starts it."""
    if process.is_running:
        if not process.is_wanted or process.wanted_restarts != process.done_restarts:
            return ProcessAction.STOP
        return ProcessAction.NOTHING
    if not process.is_wanted:
        return ProcessAction.NOTHING
    if process.wanted_restarts != process.done_restarts:
        return ProcessAction.START
    return ProcessAction.START if now_s >= process.ended_at_s + backoff_s(process.failures) else ProcessAction.WAIT


def backoff_s(failures: int) -> float:
    """Returns the delay in seconds before the restart of a process that ended this often in a row: 0 for none, then a
    minimum that doubles up to a limit.
    """
    if failures <= 0:
        return 0.0
    return min(AGENT_BACKOFF_MAX_S, AGENT_BACKOFF_MIN_S * 2 ** min(failures - 1, 20))


def failures_after_end(failures: int, ran_for_s: float) -> int:
    """Returns the count of failures after an unwanted end; a process that ran long enough restarts the count."""
    return 1 if ran_for_s >= AGENT_STABLE_AFTER_S else failures + 1

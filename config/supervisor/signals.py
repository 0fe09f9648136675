"""Ctrl-C, `down` and a closed terminal all mean the same: stop, in order, once."""

from __future__ import annotations

import signal
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """Raised in the main thread when a stop signal arrives. Not an `Exception`: no error handling may swallow it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)


def raise_on_stop_signals() -> None:
    """From here on a stop signal raises `StopRequested`. Who was started with `nohup` outlives the terminal."""
    for number in STOP_SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        signal.signal(number, _raise)


def ignore_stop_signals() -> None:
    """From here on stop signals change nothing: stopping is under way already."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, _frame: FrameType | None) -> None:
    raise StopRequested(number)

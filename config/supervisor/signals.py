"""Stop signals: Ctrl-C, `down` and a closed terminal all request one orderly stop."""

from __future__ import annotations

import signal
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """Raised in the main thread when a stop signal arrives. Not an `Exception`, so that error handling cannot swallow
    it.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)


def raise_on_stop_signals() -> None:
    """Makes stop signals raise `StopRequested`. SIGHUP stays ignored under `nohup`."""
    for number in STOP_SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        signal.signal(number, _raise)


def ignore_stop_signals() -> None:
    """Ignores stop signals while stopping."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, _frame: FrameType | None) -> None:
    raise StopRequested(number)

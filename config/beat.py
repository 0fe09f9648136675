"""Celery beat, on whose periodic tasks the repair of lost work depends.

Two faults would stop it silently: a clock that is set back, until it has caught up, and the death of beat's process,
which the worker that started it ignores.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps
from celery.beat import PersistentScheduler
from celery.worker import state

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 2.0
EXIT_WITHOUT_BEAT = 70


class Scheduler(PersistentScheduler):
    """Scheduler that continues from the present if the clock was set back, between ticks or while nothing ran."""

    def tick(self, *args: Any, **options: Any) -> float:
        """Runs one tick; returns the seconds until the next one."""
        self._adjust_to_clock()
        return float(super().tick(*args, **options))

    def _adjust_to_clock(self) -> None:
        for entry in self.schedule.values():
            now = entry.default_now()
            if entry.last_run_at > now:
                entry.last_run_at = now
                self._heap = None  # its instants were computed with the former clock


class BeatWatch(bootsteps.StartStopStep):
    """Ends a worker whose beat has died; its supervisor restarts both."""

    requires = ("celery.worker.components:Timer", "celery.worker.components:Beat")

    def __init__(self, worker: Any, **options: Any) -> None:
        self._entry: Any = None
        super().__init__(worker, **options)

    def include_if(self, worker: Any) -> bool:
        return worker.beat is not None

    def start(self, worker: Any) -> None:
        self._entry = worker.timer.call_repeatedly(CHECK_INTERVAL_S, self.check, (worker,))

    def stop(self, _worker: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()

    def check(self, worker: Any) -> None:
        """Stops the worker if beat is dead."""
        if not worker.beat.is_alive():
            logger.error("beat has died; the worker ends, to be started again with another")
            state.should_stop = EXIT_WITHOUT_BEAT

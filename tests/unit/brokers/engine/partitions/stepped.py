"""A cleaner process that tests run step by step, from one I/O operation or event to the next."""

from __future__ import annotations

import threading
from typing import Final

from brokers.engine.storage.compaction.job import CleaningFailed, Event, Job
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.run import Run

DEADLINE_S: Final = 30.0


class Killed(BaseException):
    """Ends the run at its current step."""


class SteppedRun:
    """A real run over real files, in a thread that waits at every step; `error` is the exception that ended it, if
    any.
    """

    def __init__(self, job: Job) -> None:
        self.is_over = False
        self.error: Exception | None = None
        self._killed = False
        self._event: Event | None = None
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        self._thread.start()

    def step(self) -> Event | None:
        """Runs to the next step and returns the event that was reported there, if any."""
        assert not self.is_over
        self._event = None
        self._go.release()
        assert self._stopped.acquire(timeout=DEADLINE_S)
        return self._event

    def kill(self) -> None:
        self._killed = True
        if not self.is_over:
            self._go.release()
            assert self._stopped.acquire(timeout=DEADLINE_S)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self, job: Job) -> None:
        try:
            self._wait()
            # A rate limit that is always exceeded: the run waits at every read and every write.
            Run(job, self._report, Pacer(1.0, lambda: 0.0, lambda _: self._pause())).run()
        except (CleaningFailed, OSError) as error:
            self.error = error
        except Killed:
            pass
        finally:
            self.is_over = True
            self._stopped.release()

    def _report(self, event: Event) -> None:
        self._event = event
        self._pause()

    def _pause(self) -> None:
        self._stopped.release()
        self._wait()

    def _wait(self) -> None:
        assert self._go.acquire(timeout=10 * DEADLINE_S)
        if self._killed:
            raise Killed

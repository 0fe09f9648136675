"""Threads of the lanes, started on demand when no thread is free."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from config.web.lanes import LANES, LIVE, Lane, LaneQueue, WaitingRequest, lane_of

Item = TypeVar("Item")
logger = logging.getLogger(__name__)


class _PreferredRequests:
    """Number of requests of preferred lanes, waiting and running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, change: int) -> bool:
        """Changes the count; returns True if none is left."""
        with self._lock:
            self.count += change
            return not self.count


class _LaneThreads(Generic[Item]):
    """Threads of one lane."""

    def __init__(self, lane: Lane, work: Callable[[Item], None], preferred: _PreferredRequests) -> None:
        self.lane = lane
        self._preferred = preferred
        self.queue: LaneQueue[Item] = LaneQueue(lane)
        self.lock = threading.Lock()
        self._work = work
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._free_count = 0  # waiting threads that were not woken
        self._started_count = 0
        self._is_closed = False

    def submit(self, waiting: WaitingRequest[Item]) -> WaitingRequest[Item] | None:
        """Enqueues a request and provides a thread for it. Returns the request that it displaces, if any."""
        with self.lock:
            refused = self.queue.put(waiting)
            if refused is waiting:
                return refused
            if self._free_count:
                self._free_count -= 1
                self._wakes.put(None)
            elif self._started_count < self.lane.threads:
                self._started_count += 1
                threading.Thread(target=self._run, name=f"{self.lane.name}-{self._started_count}", daemon=True).start()
        return refused

    def wake(self) -> None:
        """Wakes threads for requests that waited for preferred lanes."""
        with self.lock:
            for _ in range(min(self._free_count, len(self.queue))):
                self._free_count -= 1
                self._wakes.put(None)

    def close(self) -> None:
        """Lets each thread end when no request waits."""
        with self.lock:
            self._is_closed = True
            for _ in range(self._started_count):
                self._wakes.put(None)

    def _run(self) -> None:
        client: str | None = None
        while True:
            with self.lock:
                if client is not None:
                    self.queue.finish(client)
                waiting = self.queue.take(is_preferred_busy=self._preferred.count > 0)
                if waiting is None:
                    if self._is_closed:
                        return
                    self._free_count += 1
            if waiting is None:
                client = None
                self._wakes.get()
                continue
            client = waiting.client
            try:
                self._work(waiting.item)
            except Exception:
                logger.exception("a thread of lane %s failed", self.lane.name)


class LaneThreads(Generic[Item]):
    """Calls `work` for each item in a thread of its lane."""

    def __init__(self, work: Callable[[Item], None]) -> None:
        self._work = work
        self._preferred = _PreferredRequests()
        self._lanes = {
            lane.name: _LaneThreads(lane, self._run_preferred if lane.is_preferred else work, self._preferred)
            for lane in LANES
        }

    def submit(self, path: str, waiting: WaitingRequest[Item]) -> WaitingRequest[Item] | None:
        """Enqueues a request. Returns the request that must be refused for it, None if there is room."""
        lane = lane_of(path)
        if lane.is_preferred:
            self._preferred.add(1)
        refused = self._lanes[lane.name].submit(waiting)
        if lane.is_preferred and refused is not None:
            self._finish_preferred()
        return refused

    def submit_live(self, waiting: WaitingRequest[Item]) -> WaitingRequest[Item] | None:
        """Enqueues the next step of a live response. Returns the step that it displaces, None if there is room."""
        return self._lanes[LIVE.name].submit(waiting)

    def pop_expired(self, now_s: float) -> list[WaitingRequest[Item]]:
        """Removes and returns requests that waited too long."""
        result: list[WaitingRequest[Item]] = []
        for lane in self._lanes.values():
            with lane.lock:
                expired = list(lane.queue.pop_expired(now_s))
            if lane.lane.is_preferred:
                for _ in expired:
                    self._finish_preferred()
            result += expired
        return result

    def close(self) -> None:
        """Lets free threads end; running ones end with the process."""
        for lane in self._lanes.values():
            lane.close()

    def _run_preferred(self, item: Item) -> None:
        try:
            self._work(item)
        finally:
            self._finish_preferred()

    def _finish_preferred(self) -> None:
        if self._preferred.add(-1):
            for lane in self._lanes.values():
                if lane.lane.threads_beside_preferred is not None:
                    lane.wake()

"""The threads of the lanes. A thread is started when a request finds none that is free."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from config.web.lanes import LANES, Lane, LaneQueue, Waiting, lane_of

Item = TypeVar("Item")
logger = logging.getLogger(__name__)


class LaneThreads(Generic[Item]):
    """Calls `work` for each item in a thread of its lane."""

    def __init__(self, work: Callable[[Item], None]) -> None:
        self._work = work
        self._queues: dict[str, LaneQueue[Item]] = {lane.name: LaneQueue(lane) for lane in LANES}
        self._conditions = {lane.name: threading.Condition() for lane in LANES}
        self._free = dict.fromkeys(self._queues, 0)
        self._started = dict.fromkeys(self._queues, 0)
        self._is_closed = False

    def submit(self, path: str, waiting: Waiting[Item]) -> bool:
        """Hand over; False when the lane is full."""
        lane = lane_of(path)
        queue, condition = self._queues[lane.name], self._conditions[lane.name]
        with condition:
            if not queue.put(waiting):
                return False
            if self._free[lane.name] >= len(queue) or self._started[lane.name] >= lane.threads:
                condition.notify()
                return True
            self._started[lane.name] += 1
        name = f"{lane.name}-{self._started[lane.name]}"
        threading.Thread(target=self._run, args=(lane,), name=name, daemon=True).start()
        return True

    def expired(self, now_s: float) -> list[Waiting[Item]]:
        """Take out what waited too long."""
        result: list[Waiting[Item]] = []
        for name, queue in self._queues.items():
            with self._conditions[name]:
                result += queue.expired(now_s)
        return result

    def close(self) -> None:
        """Let free threads end; those with a request end with the process."""
        self._is_closed = True
        for condition in self._conditions.values():
            with condition:
                condition.notify_all()

    def _run(self, lane: Lane) -> None:
        queue, condition = self._queues[lane.name], self._conditions[lane.name]
        client: str | None = None
        while True:
            with condition:
                if client is not None:
                    queue.finish(client)
                while (waiting := queue.take()) is None:
                    if self._is_closed:
                        return
                    self._free[lane.name] += 1
                    condition.wait()
                    self._free[lane.name] -= 1
            client = waiting.client
            try:
                self._work(waiting.item)
            except Exception:
                logger.exception("a thread of lane %s failed", lane.name)
            del waiting

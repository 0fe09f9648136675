"""Reads of messages at once in one web process: each may hold tens of megabytes and the interpreter for a while."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from instances.messages import limits
from tenants.errors import Unavailable


class ReadTurns:
    """At most `at_once` readers in all and `per_tenant` of one tenant; others wait up to `wait_s_max`."""

    def __init__(
        self, *, at_once: int, per_tenant: int, wait_s_max: float, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once, self._per_tenant, self._wait_s_max = at_once, per_tenant, wait_s_max
        self._now_s = now_s
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, tenant_id: str) -> Iterator[None]:
        """Raises `Unavailable` where no turn comes in time."""
        ends_s = self._now_s() + self._wait_s_max
        with self._changed:
            while not self._is_free(tenant_id):
                left_s = ends_s - self._now_s()
                if left_s <= 0:
                    raise Unavailable(
                        "Other pages of messages are being read. Try again in a second.", code="busy", retry_after_s=1
                    )
                self._changed.wait(left_s)
            self._running[tenant_id] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running[tenant_id] -= 1
                if not self._running[tenant_id]:
                    del self._running[tenant_id]
                self._changed.notify_all()

    def _is_free(self, tenant_id: str) -> bool:
        return self._running.total() < self._at_once and self._running[tenant_id] < self._per_tenant


read_turns = ReadTurns(
    at_once=limits.READS_AT_ONCE_MAX,
    per_tenant=limits.READS_AT_ONCE_PER_TENANT_MAX,
    wait_s_max=limits.READ_WAIT_S_MAX,
)

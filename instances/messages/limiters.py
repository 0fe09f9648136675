"""Limits of concurrent reads and open streams of messages in one web process.

A read may use tens of megabytes of memory and block the interpreter for a while. A stream occupies a connection, and
reads from time to time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from instances.messages import limits
from tenants.errors import Unavailable


class ReadLimiter:
    """Admits `at_once` reads in all and `per_tenant` of one tenant; further reads wait up to `wait_s_max`."""

    def __init__(
        self, *, at_once: int, per_tenant: int, wait_s_max: float, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once, self._per_tenant, self._wait_s_max = at_once, per_tenant, wait_s_max
        self._now_s = now_s
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def slot(self, tenant_id: str) -> Iterator[None]:
        """Runs the block as one of the admitted reads. Raises `Unavailable` if none ends within `wait_s_max`."""
        deadline_s = self._now_s() + self._wait_s_max
        with self._changed:
            while not self._has_slot(tenant_id):
                left_s = deadline_s - self._now_s()
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

    def _has_slot(self, tenant_id: str) -> bool:
        return self._running.total() < self._at_once and self._running[tenant_id] < self._per_tenant


class StreamLimiter:
    """Counts open streams: at most `total` in all, `per_tenant` and `per_instance`. Further ones are refused."""

    def __init__(self, *, total: int, per_tenant: int, per_instance: int) -> None:
        self._total, self._per_tenant, self._per_instance = total, per_tenant, per_instance
        self._by_tenant: Counter[str] = Counter()
        self._by_instance: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._by_tenant.total()

    def acquire(self, tenant_id: str, instance_id: str) -> None:
        """Counts a stream. Raises `Unavailable` if one of the limits is reached."""
        with self._lock:
            if (
                self._by_tenant.total() >= self._total
                or self._by_tenant[tenant_id] >= self._per_tenant
                or self._by_instance[instance_id] >= self._per_instance
            ):
                raise Unavailable(
                    "As many streams of messages are open as may be. Close one, or try again in a minute.",
                    code="too_many_streams",
                    retry_after_s=60,
                )
            self._by_tenant[tenant_id] += 1
            self._by_instance[instance_id] += 1

    def release(self, tenant_id: str, instance_id: str) -> None:
        with self._lock:
            for counts, name in ((self._by_tenant, tenant_id), (self._by_instance, instance_id)):
                counts[name] -= 1
                if counts[name] <= 0:
                    del counts[name]


stream_limiter = StreamLimiter(
    total=limits.STREAMS_MAX,
    per_tenant=limits.STREAMS_PER_TENANT_MAX,
    per_instance=limits.STREAMS_PER_INSTANCE_MAX,
)
stream_read_limiter = ReadLimiter(
    at_once=limits.STREAM_READS_AT_ONCE_MAX,
    per_tenant=limits.READS_AT_ONCE_PER_TENANT_MAX,
    wait_s_max=limits.READ_WAIT_S_MAX,
)
read_limiter = ReadLimiter(
    at_once=limits.READS_AT_ONCE_MAX,
    per_tenant=limits.READS_AT_ONCE_PER_TENANT_MAX,
    wait_s_max=limits.READ_WAIT_S_MAX,
)

"""Limits, throttle ledger and usage counters of each instance on this broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from brokers.engine.throttling import refusals, request_time
from brokers.engine.throttling.charging import ClientQuotas, LimitCallback, Rule
from brokers.engine.throttling.client_shares import ClientShares
from brokers.engine.throttling.ledger import Ledger, Totals
from brokers.engine.throttling.pool import NewPool, Pool, PoolOutbox
from brokers.engine.throttling.quota_callback import SafeCallback
from brokers.engine.throttling.refusals import RefusedTopics
from brokers.engine.throttling.request_time import ChangeRate, RequestTime
from brokers.engine.throttling.shares import InstanceShares
from brokers.engine.throttling.topic_quotas import TopicQuotas
from brokers.engine.throttling.traffic import Traffic
from brokers.engine.throttling.usage import AllocateNumbers, Key, UsageAccounting, allocate_in_memory
from quotas.pacing import BURST_MS
from quotas.rates import SAMPLE_SETTINGS, SampleSettings


class InstanceAccounting:
    """Limits and counters of one instance on this broker.

    It is created when the instance first appears and kept until all its usage is reported.
    """

    __slots__ = (
        "change_rate",
        "client_quotas",
        "client_shares",
        "ledger",
        "refused_topics",
        "request_time",
        "shares",
        "topic_quotas",
        "traffic",
        "usage",
    )

    def __init__(
        self,
        burst_ms: int = BURST_MS,
        allocate_numbers: AllocateNumbers = allocate_in_memory,
        window: SampleSettings = SAMPLE_SETTINGS,
        controller_window: SampleSettings = SAMPLE_SETTINGS,
        callback: LimitCallback | None = None,
        throttled_totals: Totals | None = None,
        client_id_defaults: Mapping[str, float] = MappingProxyType({}),
        new_pool: NewPool | None = None,
    ) -> None:
        self.client_quotas = ClientQuotas(burst_ms, window, controller_window, callback, client_id_defaults)
        self.client_quotas.parts = self.client_shares = ClientShares(new_pool)
        self.topic_quotas = TopicQuotas(burst_ms, window, new_pool)
        self.shares = InstanceShares(burst_ms, window, new_pool)
        self.ledger = Ledger(throttled_totals)
        self.refused_topics = RefusedTopics()
        self.request_time = RequestTime()
        self.change_rate = ChangeRate()
        self.traffic = Traffic()
        self.usage = UsageAccounting(allocate_numbers)

    def record_request_time(self, delay_ms: int, user: str, client_id: str, now_ms: int) -> None:
        """Records a delay of a client by the request time of its instance (`now_ms` is wall time)."""
        self.traffic.record_delay(delay_ms, now_ms)
        self.ledger.record(request_time.REQUEST_TIME_RULE, None, user, client_id, delay_ms, now_ms)

    def record_connection(self, rule: Rule, delay_ms: int, now_ms: int) -> None:
        """Records that a connection was refused or delayed by one of the rules of `refusals` (`now_ms` is wall
        time).
        """
        self.ledger.record(rule, None, "", "", delay_ms, now_ms)

    def record_refused_attempt(self, user: str, delay_ms: int, now_ms: int) -> None:
        """Records that an authentication attempt was refused unchecked.

        `user` is an existing user of the instance, or "".
        """
        self.ledger.record(refusals.AUTHENTICATION_RULE, None, user, "", delay_ms, now_ms)

    def record_refusals(self, rule: Rule, user: str, client_id: str, count: int, now_ms: int) -> None:
        """Records that `count` partitions of a produce were refused (`now_ms` is wall time)."""
        self.ledger.record_refusals(rule, None, user, client_id, count, now_ms)

    def record_change_rate(self, delay_ms: int, user: str, client_id: str, now_ms: int) -> None:
        """Records a delay of a client by its instance's rate of changes in ZooKeeper (`now_ms` is wall time)."""
        self.traffic.record_delay(delay_ms, now_ms)
        self.ledger.record(request_time.CHANGE_RATE_RULE, None, user, client_id, delay_ms, now_ms)


class AccountingRegistry:
    """The accountings of all instances on this broker, by instance id.

    `burst_ms` and `window` apply to every limiter (`charging.new_pace`). `allocate_numbers` allocates a usage
    counter's numbers. `callback` decides the limits of clients before their client quotas do.
    """

    def __init__(
        self,
        burst_ms: int = BURST_MS,
        allocate_numbers: Callable[[str, Key], memoryview] | None = None,
        window: SampleSettings = SAMPLE_SETTINGS,
        controller_window: SampleSettings = SAMPLE_SETTINGS,
        callback: SafeCallback | None = None,
        client_id_defaults: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.callback = callback
        self._client_id_defaults = client_id_defaults
        self.burst_ms = burst_ms
        self._window = window
        self._controller_window = controller_window
        self._allocate_numbers = allocate_numbers
        self._accounting_by_instance: dict[str, InstanceAccounting] = {}
        self._retired_ids: set[str] = set()
        # Pools with admitted bytes that the flow master has not been sent yet.
        self.pools = PoolOutbox()
        # Throttling of all instances since the start of the process, by kind of rule.
        self.throttled_totals: Totals = {}

    def __iter__(self) -> Iterator[tuple[str, InstanceAccounting]]:
        return iter(self._accounting_by_instance.items())

    def get_or_create(self, instance_id: str) -> InstanceAccounting:
        """Returns the accounting of an instance, which is created if there is none."""
        accounting = self._accounting_by_instance.get(instance_id)
        if accounting is None:
            allocate_numbers = (
                allocate_in_memory if self._allocate_numbers is None else partial(self._allocate_numbers, instance_id)
            )
            accounting = self._accounting_by_instance[instance_id] = InstanceAccounting(
                self.burst_ms,
                allocate_numbers,
                self._window,
                self._controller_window,
                None if self.callback is None else partial(self.callback.decide_limit, instance_id),
                self.throttled_totals,
                self._client_id_defaults,
                partial(self._new_pool, instance_id),
            )
        return accounting

    def _new_pool(self, instance_id: str, direction: int, clients: str) -> Pool:
        return Pool((instance_id, direction, clients), self.pools, self.burst_ms)

    def get(self, instance_id: str) -> InstanceAccounting | None:
        """Returns the accounting of an instance, None if there is none."""
        return self._accounting_by_instance.get(instance_id)

    def usage(self) -> dict[str, UsageAccounting]:
        """Returns the usage counters of all instances, by instance id."""
        return {instance_id: accounting.usage for instance_id, accounting in self._accounting_by_instance.items()}

    def retire(self, instance_id: str) -> None:
        """Marks a deleted instance. Its accounting is kept until its usage is reported; ids are never reused."""
        self._retired_ids.add(instance_id)

    def forget_retired(self) -> None:
        """Removes the accountings of deleted instances whose usage has been reported."""
        for instance_id in [retired for retired in self._retired_ids if retired in self._accounting_by_instance]:
            if self._accounting_by_instance[instance_id].usage.is_reported:
                del self._accounting_by_instance[instance_id]
        self._retired_ids.intersection_update(self._accounting_by_instance)

    def drop_unused(self, now_ms: int) -> Generator[None, None, int]:
        """Drops the counters of quotas that were not used for an hour (QUO-8) and returns their number.

        Each step of the generator handles one instance. `now_ms` is monotonic.
        """
        dropped = 0
        for accounting in list(self._accounting_by_instance.values()):
            dropped += accounting.client_quotas.drop_unused(now_ms) + accounting.topic_quotas.drop_unused(now_ms)
            yield
        return dropped

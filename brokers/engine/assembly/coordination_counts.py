"""Counters of the coordinators, derived from the records that they replay: what was written counts.

The state machines of `coordinators` have no metrics; these subclasses examine each record again after it was replayed.
Records read at load are not counted: they were counted where they were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from brokers.engine.coordinators.groups.formats import GROUP_KEY_VERSION
from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.groups.machine import GroupMachine
from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.coordinators.transactions.expiration import ExpirationTask
from brokers.engine.coordinators.transactions.formats import UndecodableRecord, decode_value
from brokers.engine.coordinators.transactions.machine import TransactionMachine
from brokers.engine.coordinators.transactions.states import TransactionState
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.telemetry.metrics import Sample

_STATUS_AT: Final = 16  # the byte of a transaction's value that is its state
_VERSION_AT: Final = slice(0, 2)
_GROUP_KEY: Final = GROUP_KEY_VERSION.to_bytes(2, "big")
# A transaction that stays open this long after its timeout is stuck: a timeout round should have aborted it.
OVERDUE_AFTER_MS: Final = 60_000


@dataclass(slots=True)
class Counts:
    """Counters since the start of the process."""

    rebalances: int = 0
    offsets_committed: int = 0
    loads: int = 0
    begun: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0


class CountedGroups(GroupMachine):
    """Counts committed offsets, and generations with members, each of which is the end of a rebalance."""

    def __init__(self, counts: Counts, *args: Any) -> None:
        super().__init__(*args)
        self._counts = counts
        self._is_live = False

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        if self._is_live:
            if key[_VERSION_AT] != _GROUP_KEY:
                self._counts.offsets_committed += value is not None
            else:
                # In another state it is a static member with a new id, or an empty group.
                group = self.groups.get(bytes(key[4:]).decode("utf-8", "replace"))
                self._counts.rebalances += group is not None and group.state is GroupState.COMPLETING
        super().replay(key, value, offset, producer_id)

    def on_loaded(self, now: Now) -> CoordinatorResult:
        self._is_live = True
        self._counts.loads += 1
        return super().on_loaded(now)


class CountedTransactions(TransactionMachine):
    """Counts transactions by their start and outcome, and keeps the deadlines of open ones."""

    def __init__(self, counts: Counts, *args: Any) -> None:
        super().__init__(*args)
        self._counts = counts
        self._is_live = False
        self._timing_out: set[bytes] = set()
        # Wall time in ms at which the transaction exceeds its timeout, by the key of its record.
        self.ends_ms: dict[bytes, int] = {}

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        super().replay(key, value, offset, producer_id)
        state = value[_STATUS_AT] if value is not None and len(value) > _STATUS_AT else TransactionState.DEAD
        if state == TransactionState.ONGOING and value is not None:
            self._record_begin(bytes(key), value)
            return
        self.ends_ms.pop(bytes(key), None)
        if not self._is_live:
            return
        if state == TransactionState.PREPARE_ABORT and key in self._timing_out:
            self._timing_out.discard(bytes(key))
            self._counts.timed_out += 1
        self._counts.committed += state == TransactionState.COMPLETE_COMMIT
        self._counts.aborted += state == TransactionState.COMPLETE_ABORT

    def _record_begin(self, key: bytes, value: bytes) -> None:
        if key in self.ends_ms:
            return  # another partition of the same transaction
        try:
            metadata = decode_value("", value)
        except UndecodableRecord:
            return  # reported by the replay
        self.ends_ms[key] = metadata.start_ms + metadata.timeout_ms
        self._counts.begun += self._is_live

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        outcome = super().on_timer(key, now)
        if key is ExpirationTask.ABORT_OVERDUE:
            self._timing_out = {bytes(record.key) for record in outcome.records}
        return outcome

    def on_loaded(self, now: Now) -> CoordinatorResult:
        self._is_live = True
        self._counts.loads += 1
        return super().on_loaded(now)


def overdue(transactions: Runtime[Any], now_ms: int) -> int:
    """Returns the number of stuck transactions of these coordinators."""
    ends_ms = (end for shard in transactions.shards() for end in shard.machine.ends_ms.values())
    return sum(1 for end in ends_ms if now_ms > end + OVERDUE_AFTER_MS)


def samples(counts: Counts, groups: Runtime[Any], transactions: Runtime[Any], now_ms: int) -> Iterator[Sample]:
    """Yields the samples for `/metrics`. Gauges cover what this broker coordinates, so that brokers can be added up."""
    by_state: Counter[GroupState] = Counter()
    members = 0
    for shard in groups.shards():
        for group in shard.machine.groups:
            by_state[group.state] += 1
            members += len(group.members)
    for state in GroupState:
        label = (("state", state.value),)
        yield Sample("penstock_broker_groups", "gauge", "Consumer groups coordinated here.", by_state[state], label)
    yield Sample("penstock_broker_group_members", "gauge", "Members of these groups.", members)
    result = sum(len(shard.machine.ends_ms) for shard in transactions.shards())
    yield Sample("penstock_broker_transactions_open", "gauge", "Transactions open here.", result)
    text = "Open transactions that their time-out should have ended: they hang."
    yield Sample("penstock_broker_transactions_overdue", "gauge", text, overdue(transactions, now_ms))
    loading = sum(
        shard.refusal() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for runtime in (groups, transactions)
        for shard in runtime.shards()
    )
    text = "Partitions of coordinators' state that are being read."
    yield Sample("penstock_broker_coordinators_loading", "gauge", text, loading)
    for name, text, value in (
        ("coordinator_loads", "Partitions of coordinators' state that were read.", counts.loads),
        ("group_rebalances", "Generations of groups that began.", counts.rebalances),
        ("offsets_committed", "Offsets that groups committed, by partition.", counts.offsets_committed),
        ("transactions_begun", "Transactions that began.", counts.begun),
        ("transactions_committed", "Transactions that were committed.", counts.committed),
        ("transactions_aborted", "Transactions that were aborted, for whatever reason.", counts.aborted),
        ("transactions_timed_out", "Transactions that were aborted by their time-out.", counts.timed_out),
    ):
        yield Sample(f"penstock_broker_{name}", "counter", text, value)

"""Runtime of one state topic: loads a shard when this broker becomes its leader, and closes it when it resigns.

A shard is loaded by replaying the log of its state partition from start to end (GRP-25, TXN-16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Coroutine, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from brokers.engine.coordinators.interfaces import LogUnreadable, StateLog, StateMachine
from brokers.engine.coordinators.partitioning import partition_of
from brokers.engine.coordinators.result import NO_PRODUCER, CoordinatorResult, Now, StateRecord, Ticket
from brokers.engine.coordinators.shard import LOAD_IN_PROGRESS, NOT_COORDINATOR, CancelHandle, Shard

log = structlog.get_logger(__name__)
RELOAD_DELAY_MS: Final = 1_000
# A record whose replay failed in this many loads in a row is skipped by the next load, so that it blocks no others.
FAILED_REPLAYS_MAX: Final = 2
M = TypeVar("M", bound=StateMachine)


class ReplayFailed(Exception):
    """The machine raised an error for the readable record at `offset`, which is a bug in Penstock."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the record at offset {offset} could not be replayed")
        self.offset = offset


async def load_shard(shard: Shard[Any], skipped_offsets: Container[int] = ()) -> int:
    """Replays the log without the records at `skipped_offsets`, and makes the shard serve calls.

    Returns the number of records that were read.

    Markers of transactions that are appended meanwhile are read as well: there is no `await` between reaching the end
    of the log and `shard.start_serving`.

    Raises:
        LogUnreadable: from `StateLog.read`.
        ReplayFailed: the machine failed on a record. After either error the machine must be discarded.
    """
    machine = shard.machine
    offset = shard.log.start_offset
    records = 0
    while True:
        batches, next_offset = await shard.log.read(offset)
        if not batches:
            break
        for batch in batches:
            record_offset = batch.last_offset
            try:
                if batch.committed is not None:
                    if record_offset not in skipped_offsets:
                        machine.replay_marker(batch.producer_id, batch.committed, record_offset)
                    continue
                producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
                for record_offset, key, value in batch.records:
                    if record_offset not in skipped_offsets:
                        machine.replay(key, value, record_offset, producer_id)
            except Exception as error:
                raise ReplayFailed(record_offset) from error
            records += len(batch.records)
        offset = next_offset
    shard.start_serving(offset - 1)
    return records


class Loop(Protocol):
    """Clock and scheduler. `spawn` runs a coroutine in the background. The returned handles cancel the work."""

    def now(self) -> Now: ...
    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> CancelHandle: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> CancelHandle: ...


class Runtime(Generic[M]):
    """The shards of one state topic that this broker leads, and the calls to them.

    `new_machine(log)` makes an empty machine for a partition. `perform_effect(index, effect)` performs an effect of a
    decision; `on_append(records, batch_bytes)` is called after each append. `partitions` is the number of partitions of
    the state topic, 0 while it does not exist.
    """

    def __init__(
        self,
        *,
        topic: str,
        new_machine: Callable[[StateLog], M],
        loop: Loop,
        commit_timeout_ms: int,
        perform_effect: Callable[[int, object], None] = lambda index, effect: None,
        on_append: Callable[[Sequence[StateRecord], int], None] = lambda records, batch_bytes: None,
    ) -> None:
        self.topic = topic
        self.partitions = 0
        # Partitions that this broker leads according to the cluster metadata, and whose logs are not open yet.
        self.opening: frozenset[int] = frozenset()
        self.commit_timeout_ms = commit_timeout_ms
        self.perform_effect = perform_effect
        self.on_append = on_append
        self.now = loop.now
        self.call_later = loop.call_later
        self._new_machine = new_machine
        self._loop = loop
        self._shards_by_partition: dict[int, Shard[M]] = {}
        self._loads_by_partition: dict[int, CancelHandle] = {}
        # By partition that is being loaded: number of failed replays by offset.
        self._failed_replays_by_partition: dict[int, Counter[int]] = {}

    # -- calls ---------------------------------------------------------------------------------------------------------

    def partition_of(self, id: str) -> int:
        """Returns the partition that coordinates a group id or transactional id (GRP-1), -1 before the topic exists."""
        return partition_of(id, self.partitions) if self.partitions else -1

    def perform(self, id: str, operation: Callable[[M, Now, Ticket], CoordinatorResult], ticket: Ticket) -> Any:
        """Returns the reply, or REPLY_PENDING if `ticket` gets it later.

        The reply is an error if this broker does not coordinate `id` (GRP-4).
        """
        return self.perform_at(self.partition_of(id), operation, ticket)

    def perform_at(self, index: int, operation: Callable[[M, Now, Ticket], CoordinatorResult], ticket: Ticket) -> Any:
        """Performs an operation on the shard of partition `index`, with the replies of `perform`."""
        shard = self._shards_by_partition.get(index)
        code = self._refusal_code_without_shard(index) if shard is None else shard.refusal()
        if shard is None or code:
            return ticket.error_reply(code)
        return shard.perform(operation, ticket)

    def refusal(self, id: str) -> int:
        """Returns the error code with which `perform` would refuse `id`, 0 if it would call the machine."""
        index = self.partition_of(id)
        shard = self._shards_by_partition.get(index)
        return self._refusal_code_without_shard(index) if shard is None else shard.refusal()

    def _refusal_code_without_shard(self, index: int) -> int:
        """Returns the error code for a partition that has no shard."""
        return LOAD_IN_PROGRESS if index in self.opening else NOT_COORDINATOR

    def is_unavailable(self, index: int) -> bool:
        """True if this broker should coordinate the partition but refuses calls, because the shard is loading or its
        leadership is uncertain.
        """
        shard = self._shards_by_partition.get(index)
        return index in self.opening if shard is None else shard.refusal() != 0

    def shards(self) -> Iterator[Shard[M]]:
        """Iterates over all shards, those that are loading included."""
        return iter(tuple(self._shards_by_partition.values()))

    def on_marker_appended(self, index: int, producer_id: int, committed: bool, offset: int) -> None:
        """Replays a transaction marker that was appended to the partition `index`, if this broker coordinates it."""
        shard = self._shards_by_partition.get(index)
        if shard is not None:
            shard.on_marker_appended(producer_id, committed, offset)

    # -- leadership ----------------------------------------------------------------------------------------------------

    def lead(self, state_log: StateLog) -> None:
        """Discards the shard of an earlier leadership of the partition, if any, and starts loading its log."""
        index = state_log.index
        shard = self._shards_by_partition.get(index)
        if shard is not None:
            if shard.log.leader_epoch == state_log.leader_epoch and shard.refusal() != NOT_COORDINATOR:
                return
            self.resign(index)
        self._failed_replays_by_partition.pop(index, None)
        self._begin_loading(state_log)

    def resign(self, index: int) -> None:
        """Closes the shard of a partition, if there is one: its waiting calls fail with NOT_COORDINATOR."""
        loading = self._loads_by_partition.pop(index, None)
        if loading is not None:
            loading.cancel()
        shard = self._shards_by_partition.pop(index, None)
        if shard is not None:
            shard.close()
            log.info("coordinator_unloaded", topic=self.topic, partition=index, leader_epoch=shard.log.leader_epoch)

    def reload(self, index: int) -> None:
        """Reloads a shard after a replayed append may have been lost, so that its state matches the log."""
        shard = self._shards_by_partition.get(index)
        if shard is None:
            return
        state_log = shard.log
        self.resign(index)
        if state_log.is_led:
            self._begin_loading(state_log)

    def leads(self, index: int, leader_epoch: int) -> bool:
        """True if there is a shard of the partition for this leadership, loaded or loading."""
        shard = self._shards_by_partition.get(index)
        return shard is not None and shard.log.leader_epoch == leader_epoch and shard.refusal() != NOT_COORDINATOR

    def led_partitions(self) -> tuple[int, ...]:
        """Returns the partitions that have a shard here, loaded or loading."""
        return tuple(self._shards_by_partition)

    def _begin_loading(self, state_log: StateLog) -> None:
        index = state_log.index
        shard = Shard(state_log, self._new_machine(state_log), self)
        self._shards_by_partition[index] = shard
        self._loads_by_partition[index] = self._loop.spawn(self._load(shard))

    async def _load(self, shard: Shard[M]) -> None:
        began_ms = self.now().monotonic_ms
        failures = self._failed_replays_by_partition.setdefault(shard.index, Counter())
        skipped_offsets = {offset for offset, times in failures.items() if times >= FAILED_REPLAYS_MAX}
        if skipped_offsets:
            log.error(
                "coordinator_records_left_out", topic=self.topic, partition=shard.index, offsets=sorted(skipped_offsets)
            )
        try:
            records = await load_shard(shard, skipped_offsets)
        except LogUnreadable as error:
            log.warning("coordinator_not_loaded", topic=self.topic, partition=shard.index, reason=str(error))
            self.call_later(RELOAD_DELAY_MS, lambda: self._reload_if_led(shard))
            return
        except Exception as error:  # a bug: logged and retried, so that the partition is not stuck loading
            log.exception("coordinator_not_loaded", topic=self.topic, partition=shard.index)
            if isinstance(error, ReplayFailed):
                failures[error.offset] += 1
            self.call_later(RELOAD_DELAY_MS, lambda: self._reload_if_led(shard))
            return
        self._loads_by_partition.pop(shard.index, None)
        self._failed_replays_by_partition.pop(shard.index, None)
        if records:
            took_ms = self.now().monotonic_ms - began_ms
            log.info("coordinator_loaded", topic=self.topic, partition=shard.index, records=records, took_ms=took_ms)

    def _reload_if_led(self, shard: Shard[M]) -> None:
        if self._shards_by_partition.get(shard.index) is shard and shard.log.is_led:
            self.resign(shard.index)
            self._begin_loading(shard.log)

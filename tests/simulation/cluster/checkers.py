"""Checkers of brokers and ZooKeeper from outside, after every step: invariants that hold whatever happens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.engine.partitions.partition import Partition
from tests.simulation.cluster.broker import Host, Process
from tests.simulation.cluster.disks import Disks
from tests.simulation.cluster.documents import state_of, topic_of
from tests.simulation.cluster.promises import BrokenPromise, Promises
from tests.simulation.cluster.records import ORDERS, StoredBatch, Topic, parse
from tests.simulation.cluster.zookeeper import Ensemble

READ_BYTES: int = 1 << 16


class Seen:
    """Last seen state of one replica: its high watermark, and the offset up to which its log was compared."""

    __slots__ = ("compared", "high_watermark", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.high_watermark = 0
        self.compared = partition.log_start_offset


class Checkers:
    """Checkers of one topic with its id.

    Call `look` after a step; it raises BrokenPromise. `on_write` must be called for every write to ZooKeeper.
    """

    def __init__(
        self, promises: Promises, ensemble: Ensemble, disks: Disks, partitions: int, topic: Topic = ORDERS
    ) -> None:
        self.promises = promises
        self.topic = topic
        self._ensemble = ensemble
        self._disks = disks
        self._leaders: dict[tuple[int, int], int] = {}
        self._states: dict[int, PartitionStateDocument] = {}
        self._seen_replicas: dict[tuple[Process, int], Seen] = {}
        self.broken: BrokenPromise | None = None
        self._paths: dict[str, int] = {}
        self.partitions = 0
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        self.partitions = partitions
        self._paths = {paths.partition_state(self.topic.name, index): index for index in range(partitions)}

    def replica_of(self, process: Process, index: int) -> Partition | None:
        """Returns a broker's replica of a partition, None if it has none or its disk is offline."""
        partition = process.table.get(self.topic.name, index)
        if partition is None or partition.offline or self.topic.id not in (None, partition.topic_id):
            return None
        return partition

    # -- ZooKeeper -----------------------------------------------------------------------------------------------------

    def on_write(self, path: str, data: bytes | None, session: int) -> None:
        index = self._paths.get(path)
        if index is None or data is None:
            return
        state = state_of(data)
        try:
            self._check_state(index, state)
        except BrokenPromise as failure:
            # Raised by the next look, because this is called during a broker's request.
            self.broken = self.broken or failure
        self._states[index] = state

    def _check_state(self, index: int, state: PartitionStateDocument) -> None:
        before = self._states.get(index)
        node = self._ensemble.tree.read(paths.topic(self.topic.name))
        replicas = topic_of(node.data).assignment[index] if node is not None else ()
        if not state.isr or not set(state.isr) <= set(replicas) or len(set(state.isr)) < len(state.isr):
            raise BrokenPromise(f"the state of partition {index} has ISR {state.isr} with replicas {replicas}")
        if state.leader >= 0 and state.leader not in state.isr:
            raise BrokenPromise(
                f"the state of partition {index} has leader {state.leader}, which is not in the ISR {state.isr}"
            )
        if state.leader >= 0:
            self._check_leader(index, state.leader_epoch, state.leader, "is written as leader")
        if before is not None:
            if state.leader_epoch < before.leader_epoch:
                raise BrokenPromise(
                    f"the leader epoch of partition {index} fell from {before.leader_epoch} to {state.leader_epoch}"
                )
            if state.controller_epoch < before.controller_epoch:
                raise BrokenPromise(f"the state of partition {index} is written by a deposed controller")

    def _check_leader(self, index: int, epoch: int, broker: int, claim: str) -> None:
        first_leader = self._leaders.setdefault((index, epoch), broker)
        if first_leader != broker:
            raise BrokenPromise(f"b{broker} {claim} of partition {index} in epoch {epoch}, which b{first_leader} leads")

    # -- brokers -------------------------------------------------------------------------------------------------------

    def check_invariants(self, hosts: dict[int, Host], others: Sequence[Checkers] = ()) -> None:
        """Checks all brokers that have run since the last look; `others` are checkers that check the same ones."""
        checkers = (self, *others)
        for checker in checkers:
            if checker.broken is not None:
                raise checker.broken
        for host in hosts.values():
            process = host.process
            if process is None or process.loop.is_paused:
                continue
            if process.loop.faults:
                raise BrokenPromise(process.loop.faults[0])
            if not process.loop.has_run:
                # Unchanged since the last look.
                continue
            process.loop.has_run = False
            for checker in checkers:
                checker.inspect(process)
        for checker in checkers:
            checker.inspect_isrs(hosts)

    def inspect(self, process: Process) -> None:
        for index in range(self.partitions):
            partition = self.replica_of(process, index)
            if partition is not None:
                self._inspect(process, index, partition)

    def _inspect(self, process: Process, index: int, partition: Partition) -> None:
        seen = self._seen_replicas.get((process, index))
        if seen is None or seen.partition is not partition:
            seen = self._seen_replicas[process, index] = Seen(partition)
        broker_name = f"b{process.id}"
        high_watermark, end_offset = partition.high_watermark, partition.log_end_offset
        if high_watermark < seen.high_watermark:
            raise BrokenPromise(
                f"{broker_name} lowers the high watermark of partition {index} from {seen.high_watermark} "
                f"to {high_watermark}"
            )
        if high_watermark > end_offset:
            raise BrokenPromise(
                f"{broker_name} has a high watermark of partition {index} ({high_watermark}) beyond its end "
                f"({end_offset})"
            )
        start_offset = partition.log_start_offset
        if not start_offset <= min(high_watermark, self.promises.start_max(index)):
            raise BrokenPromise(
                f"{broker_name} has a log start of partition {index} ({start_offset}) beyond the deleted records "
                f"({self.promises.start_max(index)}) or the high watermark ({high_watermark})"
            )
        starts_seen = self.promises.starts_seen
        starts_seen[index] = max(starts_seen[index], start_offset)
        isr, replicas = partition.isr, partition.replicas
        if isr != replicas and not set(isr) <= set(replicas):
            raise BrokenPromise(f"{broker_name} has ISR {isr} with replicas {replicas}")
        seen.high_watermark = high_watermark
        if partition.is_leader:
            self._check_leader(index, partition.leader_epoch, process.id, "acts as leader")
            self._check_start(index, partition, start_offset, broker_name)
        seen.compared = max(seen.compared, start_offset)
        if seen.compared < high_watermark:
            self._compare(process, index, partition, seen, high_watermark, broker_name)

    def _check_start(self, index: int, partition: Partition, start_offset: int, broker_name: str) -> None:
        """Checks that a leader, unless it was deposed without knowing it, has deleted the records whose deletion was
        acknowledged.
        """
        start_min, deleter_name = self.promises.starts_min[index]
        if start_offset < start_min and partition.leader_epoch == self._states[index].leader_epoch:
            raise BrokenPromise(
                f"{broker_name} leads partition {index} in epoch {partition.leader_epoch} with log start "
                f"{start_offset}, after {deleter_name} was told {start_min}"
            )

    def _compare(
        self, process: Process, index: int, partition: Partition, seen: Seen, until: int, broker_name: str
    ) -> None:
        promises = self.promises
        for batch in self.read_batches(process, partition, seen.compared, until):
            if batch.last_offset < promises.end(index):
                promises.confirm(index, batch, broker_name)
            elif partition.is_leader:
                promises.commit(index, batch, broker_name)
            else:
                # The follower learned the high watermark before this look at its leader, or its leader is gone.
                promises.commit(index, batch, f"follower {broker_name}")
            seen.compared = batch.last_offset + 1

    def read_batches(self, process: Process, partition: Partition, start: int, until: int) -> list[StoredBatch]:
        """Returns the batches of a log from offset `start` to offset `until`."""
        result: list[StoredBatch] = []
        self._disks.current = process.host.disk
        try:
            while start < until:
                slice_ = partition.log.read(start, READ_BYTES, until, min_one_batch=True, may_wait=True)
                if slice_ is None:
                    raise BrokenPromise(f"b{process.id} has no data at {partition.index}:{start}, below {until}")
                batches = parse(os.pread(slice_.fd, slice_.length, slice_.position))
                slice_.release()
                if not batches:
                    raise BrokenPromise(f"b{process.id} has no batch at {partition.index}:{start}")
                result += [batch for batch in batches if batch.last_offset >= start]
                start = batches[-1].last_offset + 1
        finally:
            self._disks.current = None
        return result

    def inspect_isrs(self, hosts: dict[int, Host]) -> None:
        """Checks that every in-sync replica in the incarnation that the state names has all committed batches."""
        for index, state in self._states.items():
            end = self.promises.end(index)
            if len(state.isr_broker_epochs) != len(state.isr):
                continue
            for id, epoch in zip(state.isr, state.isr_broker_epochs, strict=True):
                process = hosts[id].process
                if process is None or process.session.broker_epoch != epoch or not process.is_listening:
                    continue
                partition = self.replica_of(process, index)
                if partition is None:
                    continue
                if partition.log_end_offset < end:
                    raise BrokenPromise(
                        f"b{id} is in the ISR of partition {index} ({state.isr}, epoch {state.leader_epoch}) with log "
                        f"end {partition.log_end_offset}, below the committed end {end}"
                    )

    # -- at the end ----------------------------------------------------------------------------------------------------

    def check_equal_logs(self, hosts: dict[int, Host]) -> None:
        """Checks that without writes and with all replicas in sync, all logs are equal and committed to the end."""
        for index in range(self.partitions):
            state = self._states[index]
            starts = set()
            for id in state.isr:
                process = hosts[id].process
                assert process is not None
                partition: Any = self.replica_of(process, index)
                start_offset = partition.log_start_offset
                starts.add(start_offset)
                batches = self.read_batches(process, partition, start_offset, partition.log_end_offset)
                if batches != [batch for batch in self.promises.committed[index] if batch.last_offset >= start_offset]:
                    raise BrokenPromise(f"the log of partition {index} on b{id} differs from the committed batches")
            if len(starts) > 1 and self.promises.is_kept:
                raise BrokenPromise(f"the logs of partition {index} have different starts: {sorted(starts)}")
        self.promises.check_nothing_open()

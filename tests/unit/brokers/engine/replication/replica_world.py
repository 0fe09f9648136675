"""Three replicas of one partition over real logs, run step by step, with the records, known states and live brokers.

The network, the documents and the controller are a few lines each; the log, the leader's state and the fetch session
are those of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from brokers.engine.partitions.follower_session import FollowerSession
from brokers.engine.partitions.following import append_fetched
from brokers.engine.partitions.partition import LOG_END, Partition
from brokers.engine.partitions.progress import out_of_sync_replicas
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import error_codes
from brokers.engine.records.batch import scan_headers
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.replication.truncation import resolve_out_of_range, truncation_offset

TOPIC, TOPIC_ID = "t", b"t" * 16
KEY = (TOPIC_ID, 0)
BROKERS = (1, 2, 3)
NOW_MS = 1_700_000_000_000
LAG_MS_MAX = 1_000
# A response has two or three batches, so that followers are usually somewhere in between.
BYTES_MAX = 200
ROUNDS_MAX = 400
SEGMENT_BYTES = 400


@dataclass(frozen=True)
class State:
    """Document of the partition, and the controller's view of live brokers."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    incarnations: tuple[int, ...]


@dataclass(frozen=True)
class Record0:
    """An acknowledged record: its value and position."""

    offset: int
    value: bytes


class Replica:
    """Replica of one broker; `seen` is the state that it acts on."""

    def __init__(self, broker: int, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.incarnation = 0
        self.is_up = False
        self.sessions: dict[int, FollowerSession] = {}
        self.seen: State | None = None
        self.proposed_on: int | None = None
        self.start()

    def start(self) -> None:
        self.incarnation += 1
        self.is_up = True
        self.sessions = {}
        self.seen = None
        self.proposed_on = None
        self.table = PartitionTable(
            StorageSettings(roots=(self.directory,), broker_id=self.broker, cluster_id="c", retention_interval_ms=1)
        )
        self.table.recover(NOW_MS)
        self.highest = 0

    def kill(self) -> None:
        """Kills the broker: written records stay in the page cache, the state of the process is lost."""
        self.is_up = False
        for partition in self.table:
            for segment in partition.log.segments:
                segment.file.close()
        for root in self.table._roots:
            root.unlock()

    @property
    def partition(self) -> Partition | None:
        return self.table.get(TOPIC, 0)

    @property
    def leads(self) -> bool:
        return self.is_up and self.partition is not None and self.partition.is_leader


class ReplicaWorld:
    def __init__(self, directory: Path, *, min_insync: int = 2) -> None:
        self.now_ms = 0
        self.replicas = {broker: Replica(broker, directory / str(broker)) for broker in BROKERS}
        self.config = {"min.insync.replicas": str(min_insync)}
        self.state = State(1, 0, BROKERS, 0, self._incarnations(BROKERS))
        self.leaders: dict[int, int] = {0: 1}
        self.made = 0
        self.waiting: list[tuple[int, int, int, Record0]] = []
        self.acknowledged: list[Record0] = []

    def _incarnations(self, isr: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.replicas[member].incarnation for member in isr)

    # -- documents ----------------------------------------------------------------------------------------------------

    def show(self, broker: int) -> None:
        """Shows a broker the latest state."""
        replica, state = self.replicas[broker], self.state
        if not replica.is_up or replica.seen == state:
            return
        replica.seen = state
        if state.leader == broker:
            partition = replica.table.become_leader(
                TOPIC,
                0,
                TOPIC_ID,
                state.leader_epoch,
                self.config,
                now_ms=NOW_MS,
                role=PartitionRole(BROKERS, state.isr, is_known=True, since_ms=self.now_ms),
            )
            if replica.proposed_on is not None and replica.proposed_on != state.version:
                replica.proposed_on = None
                partition.propose_isr(None)
        else:
            replica.proposed_on = None
            replica.table.become_follower(
                TOPIC,
                0,
                TOPIC_ID,
                state.leader_epoch,
                self.config,
                now_ms=NOW_MS,
                role=PartitionRole(BROKERS, state.isr, state.leader, True),
            )
        log = replica.partition.log
        log.config = log.config._replace(segment_bytes=SEGMENT_BYTES)

    def _write(self, state: State) -> None:
        if state.leader_epoch in self.leaders:
            assert self.leaders[state.leader_epoch] == state.leader, "two leaders in one epoch"
        if state.leader >= 0:
            self.leaders[state.leader_epoch] = state.leader
        self.state = replace(state, version=self.state.version + 1)

    def elect(self, preferred: int) -> None:
        """Runs the controller: dead and re-registered members leave the ISR, and an in-sync one becomes the leader."""
        state = self.state
        same = [
            member
            for member, incarnation in zip(state.isr, state.incarnations, strict=True)
            if self.replicas[member].is_up and self.replicas[member].incarnation == incarnation
        ]
        if not same:
            # The last member stays in the ISR and leads again when it is back with its records (REP-30).
            last = state.isr[0] if len(state.isr) == 1 else None
            back = last is not None and self.replicas[last].is_up
            isr = (last,) if last is not None else state.isr[:1]
            leader = isr[0] if back else -1
            if (leader, isr) == (state.leader, state.isr) and self._incarnations(isr) == state.incarnations:
                return
            incarnations = self._incarnations(isr) if back else state.incarnations[:1]
            self._write(
                replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr, incarnations=incarnations)
            )
            return
        leader = preferred if preferred in same else same[0]
        if tuple(same) == state.isr and leader == state.leader:
            return
        self._write(
            State(
                leader,
                state.leader_epoch + 1,
                tuple(same),
                0,
                tuple(self.replicas[member].incarnation for member in same),
            )
        )

    def write_isr(self, broker: int) -> None:
        """Lets a leader write the ISR that it decides on, by compare-and-set."""
        replica = self.replicas[broker]
        partition, seen = replica.partition, replica.seen
        if not replica.leads or partition is None or seen is None or partition.leadership is None:
            return
        if replica.proposed_on is not None:
            return
        leadership = partition.leadership
        for follower in leadership.followers.values():
            follower.update_keeps_up(self.now_ms, LAG_MS_MAX)
        gone = out_of_sync_replicas(
            partition.isr, broker, leadership.followers, partition.log_end_offset, self.now_ms, LAG_MS_MAX
        )
        joined = [
            member
            for member in leadership.isr_candidates(partition.high_watermark)
            if self.replicas[member].is_up
            and self.replicas[member].incarnation == leadership.followers[member].broker_epoch
        ]
        isr = (*(member for member in partition.isr if member not in gone), *joined)
        if isr == partition.isr:
            return
        replica.proposed_on = seen.version
        partition.propose_isr(isr)
        if self.state.version == seen.version:
            known = dict(zip(seen.isr, seen.incarnations, strict=True))
            incarnations = tuple(known.get(member, self.replicas[member].incarnation) for member in isr)
            self._write(replace(seen, isr=isr, incarnations=incarnations))

    # -- clients ------------------------------------------------------------------------------------------------------

    def produce(self, broker: int, count: int = 1) -> int:
        """Produces with acks=all to a broker and returns the error code."""
        partition = self.replicas[broker].partition
        if not self.replicas[broker].is_up or partition is None:
            return error_codes.NOT_LEADER_OR_FOLLOWER
        self.made += 1
        value = b"%d" % self.made
        records = build_batch([Record(NOW_MS, None, value)] * count)
        result = partition.append(memoryview(bytearray(records)), NOW_MS, acks=-1, produce_version=9)
        if not result.error_code:
            record = Record0(result.base_offset, value)
            self.waiting.append((broker, self.replicas[broker].incarnation, partition.leader_epoch, record))
            self.complete()
        return result.error_code

    def complete(self) -> None:
        """Acknowledges the records whose leader still leads and has committed them."""
        left = []
        for broker, incarnation, epoch, record in self.waiting:
            replica = self.replicas[broker]
            partition = replica.partition
            if (
                not replica.leads
                or replica.incarnation != incarnation
                or partition is None
                or partition.leader_epoch != epoch
            ):
                continue
            if partition.high_watermark > record.offset and partition.has_enough_replicas():
                self.acknowledged.append(record)
            else:
                left.append((broker, incarnation, epoch, record))
        self.waiting = left

    # -- followers ----------------------------------------------------------------------------------------------------

    def fetch(self, broker: int) -> str:
        """Executes one request of a follower with its response and returns the result."""
        replica = self.replicas[broker]
        partition = replica.partition
        if not replica.is_up or partition is None or partition.is_leader or partition.leader < 0:
            return "follows nobody"
        leader = self.replicas[partition.leader]
        if not leader.is_up:
            return "not reached"
        session = leader.sessions.get(broker)
        if session is None or session.replica_epoch != replica.incarnation:
            if session is not None:
                session.close()
            session = leader.sessions[broker] = FollowerSession(1, broker, replica.incarnation)
        session.fetched_ms = self.now_ms
        result = leader.partition
        offset = partition.log_end_offset
        wanted = (
            0, partition.leader_epoch, offset, partition.last_fetched_epoch, partition.log_start_offset, BYTES_MAX,
        )  # fmt: skip
        session.update_position(
            KEY, wanted, error_codes.NOT_LEADER_OR_FOLLOWER if result is None else result, self.now_ms
        )
        self.complete()
        outcome = self._answer(replica, partition, session, result)
        replica.highest = max(replica.highest, partition.high_watermark)
        return outcome

    def _answer(self, replica: Replica, partition: Partition, session: FollowerSession, found: Partition | None) -> str:
        line = session.pop_ready()
        if line is None:
            assert found is not None
            append_fetched(partition, memoryview(b""), found.high_watermark, found.log_start_offset, NOW_MS)
            return "caught up"
        if line.code == error_codes.OFFSET_OUT_OF_RANGE:
            assert found is not None
            error_code = resolve_out_of_range(partition.log_end_offset, found.log_start_offset, found.log_end_offset)
            if error_code.truncate_to is not None:
                replica.table.truncate(partition, error_code.truncate_to, NOW_MS)
            elif error_code.restart_at is not None:
                replica.table.truncate_fully_and_start_at(partition, error_code.restart_at, NOW_MS)
            return "out of range"
        if line.code:
            return f"refused with {line.code}"
        if line.diverging is not None:
            offset = truncation_offset(partition.log.epochs, partition.log_end_offset, *line.diverging)
            assert offset >= partition.high_watermark, "what was committed is truncated"
            replica.table.truncate(partition, offset, NOW_MS)
            return "truncated"
        assert found is not None
        result = found.read(
            line.request[2], BYTES_MAX, min_one_batch=True, isolation=LOG_END, current_leader_epoch=line.request[1]
        )
        assert not result.error_code
        if result.slice is None:
            session.mark_idle(line)
            return "nothing"
        data = bytearray(result.slice.read())
        result.slice.release()
        append_fetched(partition, memoryview(data), result.high_watermark, result.log_start_offset, NOW_MS)
        return "appended"

    # -- invariants ---------------------------------------------------------------------------------------------------

    def batches(self, broker: int) -> list[bytes]:
        """Returns every batch of a replica's log as it is stored."""
        partition = self.replicas[broker].partition
        assert partition is not None
        data = b"".join(segment.batch_at(0, segment.size_bytes) for segment in partition.log.segments)
        return [data[at : at + header.size_bytes] for at, header in scan_headers(data)]

    def committed_offset(self, broker: int, below: int) -> list[bytes]:
        return [batch for batch in self.batches(broker) if int.from_bytes(batch[:8], "big") < below]

    def check(self) -> None:
        online = [replica for replica in self.replicas.values() if replica.is_up and replica.partition is not None]
        for replica in online:
            partition = replica.partition
            assert partition is not None
            partition.check()
        for replica in online:
            for other in online:
                if replica.broker < other.broker and replica.partition is not None and other.partition is not None:
                    below = min(replica.partition.high_watermark, other.partition.high_watermark)
                    assert self.committed_offset(replica.broker, below) == self.committed_offset(other.broker, below)

    def heal(self) -> Partition:
        """Restarts all brokers and lets them catch up; returns the leader's replica."""
        for replica in self.replicas.values():
            if not replica.is_up:
                replica.start()
        for _ in range(ROUNDS_MAX):
            self.elect(self.state.leader)
            for broker in BROKERS:
                self.show(broker)
            outcomes = [self.fetch(broker) for broker in BROKERS]
            for broker in BROKERS:
                self.write_isr(broker)
            if set(self.state.isr) == set(BROKERS) and outcomes.count("caught up") == len(BROKERS) - 1:
                break
        assert set(self.state.isr) == set(BROKERS), self.state
        leader = self.replicas[self.state.leader].partition
        assert leader is not None
        return leader

"""A follower's environment controlled by the test: clock, timers, and links whose other end is the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.replication.fetchers import Fetchers
from brokers.engine.replication.interfaces import LinkOwner
from brokers.engine.throttling.replication import UNLIMITED, ReplicationThrottle

NOW_MS = 1_700_000_000_000
TOPIC_ID = b"t" * 16
ME, LEADER = 1, 2
MY_EPOCH = 77


class SteppedClock:
    def __init__(self) -> None:
        self.passed_ms = 0

    def now_ms(self) -> int:
        return NOW_MS + self.passed_ms

    def monotonic_ms(self) -> int:
        return 1_000 + self.passed_ms


class StepTimer:
    def __init__(self, due_ms: int, call: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.call = call
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True


class HandLink:
    """A link with the requests in `sent`, as (api key, version, correlation id, message)."""

    def __init__(self, broker: BrokerInfo, owner: LinkOwner) -> None:
        self.broker = broker
        self.owner = owner
        self.sent: list[tuple[int, int, int, Any]] = []
        self.is_closed = False

    def send(self, frame: bytes) -> None:
        api_key, version, correlation_id, _, body = decode_request_header(frame, 4, len(frame))
        message = codec.decode_request(api_key, version, frame, body, len(frame))
        self.sent.append((api_key, version, correlation_id, message))

    def trim(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def answer(self, response: Any) -> None:
        """Answers the oldest request."""
        api_key, version, correlation_id, _ = self.sent.pop(0)
        body = codec.encode_response(api_key, version, response)
        frame = encode_response_frame(api_key, version, correlation_id, body)
        buffer = memoryview(bytearray(frame + b"behind"))
        self.owner.on_frame(buffer, 4, len(frame))

    @property
    def request(self) -> Any:
        """The only request in flight."""
        assert len(self.sent) == 1, self.sent
        return self.sent[0][3]

    def asked(self) -> list[tuple[int, int, int, int]]:
        """Returns (partition, leader epoch, offset, last epoch) of the only fetch in flight."""
        assert self.sent[0][0] == ApiKey.FETCH
        return [
            (line.partition, line.current_leader_epoch, line.fetch_offset, line.last_fetched_epoch)
            for topic in self.request.topics
            for line in topic.partitions
        ]


class SteppedWorld:
    """Environment of `fetchers` over a real table; `links` are in the order of their creation."""

    def __init__(self, directory: Path, limit_bytes_per_s: int = UNLIMITED) -> None:
        self.clock = SteppedClock()
        self.table = PartitionTable(StorageSettings(roots=(directory,), broker_id=ME, cluster_id="c"))
        self.table.recover(NOW_MS)
        self.links: list[HandLink] = []
        self._timers: list[StepTimer] = []
        # Callbacks for persisted log start offsets; None calls them at once.
        self.starts_to_keep: list[Callable[[], object]] | None = None
        self.fetchers = Fetchers(
            broker_id=ME,
            broker_epoch=lambda: MY_EPOCH,
            table=self.table,
            clock=self.clock,
            connect=self._connect,
            call_later=self._call_later,
            persist_log_start_offsets=self._keep_starts,
            throttle=ReplicationThrottle(limit_bytes_per_s),
        )
        self.fetchers.on_brokers({LEADER: broker_info(LEADER)})

    def _connect(self, broker: BrokerInfo, owner: LinkOwner) -> HandLink:
        self.links.append(HandLink(broker, owner))
        return self.links[-1]

    def _keep_starts(self, root: Path, then: Callable[[], object]) -> None:
        if self.starts_to_keep is None:
            write_starts(self.table, then)
        else:
            self.starts_to_keep.append(then)

    def starts_are_kept(self) -> None:
        """Completes the pending writes."""
        waiting, self.starts_to_keep = self.starts_to_keep or [], []
        for then in waiting:
            write_starts(self.table, then)

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> StepTimer:
        timer = StepTimer(self.clock.passed_ms + delay_ms, call)
        self._timers.append(timer)
        return timer

    def pass_ms(self, count: int) -> None:
        """Advances the clock and calls the timers that are due."""
        end_ms = self.clock.passed_ms + count
        for _ in range(1_000):
            due = [timer for timer in self._timers if not timer.is_over and timer.due_ms <= end_ms]
            if not due:
                self.clock.passed_ms = end_ms
                return
            timer = min(due, key=lambda timer: timer.due_ms)
            timer.is_over = True
            self.clock.passed_ms = max(self.clock.passed_ms, timer.due_ms)
            timer.call()
        raise AssertionError("a timer that never rests")

    @property
    def link(self) -> HandLink:
        return self.links[-1]

    def follow(self, index: int = 0, *, leader_epoch: int = 5, leader: int = LEADER, **config: str) -> Partition:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        partition = self.table.become_follower(
            "topic",
            index,
            TOPIC_ID,
            leader_epoch,
            settings,
            now_ms=self.clock.now_ms(),
            role=PartitionRole((ME, leader), (leader,), leader),
        )
        self.fetchers.follow(partition)
        return partition

    def come_up(self, session_id: int = 0) -> HandLink:
        """Connects the link and answers the first request without records."""
        self.pass_ms(0)
        self.link.owner.on_up()
        self.link.answer(fetched(session_id=session_id))
        return self.link

    def error_of(self, index: int = 0) -> str:
        return next(state.error for state in self.fetchers.states() if state.index == index)


def write_starts(table: PartitionTable, then: Callable[[], object]) -> None:
    batch = table.flusher.plan_start_offsets(table.settings.roots)
    batch.run()
    batch.finish()
    then()


def broker_info(broker_id: int, epoch: int = 9) -> BrokerInfo:
    return BrokerInfo(broker_id, "127.0.0.1", 1000 + broker_id, 0, None, epoch)


def batches(base_offset: int, *counts: int, leader_epoch: int = 5) -> bytes:
    """Returns consecutive batches with the given numbers of records, as their leader stored them."""
    out = b""
    for count in counts:
        records = [Record(NOW_MS, None, b"value") for _ in range(count)]
        batch = build_batch(records)
        layout.set_offset_and_epoch(batch, base_offset, leader_epoch)
        out += bytes(batch)
        base_offset += count
    return out


def line(index: int = 0, records: bytes = b"", *, error: int = 0, high_watermark: int = 0, start_offset: int = 0,
         diverging: tuple[int, int] | None = None) -> FetchPartitionData:  # fmt: skip
    return FetchPartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=start_offset,
        diverging_epoch=EpochEndOffset(*diverging) if diverging else EpochEndOffset(epoch=-1, end_offset=-1),
        aborted_transactions=None,
        records=records,
    )


def fetched(*lines: FetchPartitionData, session_id: int = 0, error: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(lines))] if lines else []
    return FetchResponse(session_id=session_id, error_code=error, responses=topics)

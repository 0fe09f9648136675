"""Simulated producers, which retry until they are answered, and consumers, which read committed records.

They run outside of all processes and find leaders in the image of any broker, which may be outdated.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.headers import decode_response_header
from tests.simulation.cluster.broker import SimulationContext
from tests.simulation.cluster.clock import BEGAN_MS, US_PER_MS
from tests.simulation.cluster.connections import Dialled
from tests.simulation.cluster.network import CLIENTS
from tests.simulation.cluster.promises import Promises
from tests.simulation.cluster.records import (
    ORDERS,
    PRODUCE_VERSION,
    Topic,
    build_numbered_batch,
    crc_of,
    fetch_frame,
    fetch_version,
    parse,
    produce_frame,
)

ANSWER_MS_MAX: Final = 1_000
SETTLE_MS_MAX: Final = 600
BACK_OFF_MS: Final = (10, 20, 50, 100)
ACKS_ALL: Final = -1
# Errors after which the same batch is sent again; all others are faults.
RETRIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        # From a leader that is behind; readers whose records are not deleted, and deleters, may retry.
        ErrorCode.OFFSET_OUT_OF_RANGE,
        # From a deposed leader that does not know it, and lacks the records of the next one.
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)


class Client(ABC):
    """A client with one connection to the supposed leader of partition `index`, and one request at a time."""

    def __init__(
        self, name: str, index: int, context: SimulationContext, note: Callable[[str], object], topic: Topic = ORDERS
    ) -> None:
        self.name = name
        self.index = index
        self.context = context
        self.note = note
        self.topic = topic
        self.leader_epoch = -1
        # Requests that were sent and not answered, which may still be processed later.
        self.unanswered = 0
        # True if the broker that gets the current request by name had the topic with this id when it was sent.
        self.is_known = True
        self._target = -1
        self._link: Dialled | None = None
        self._is_up = False
        self._correlation_id = 0
        self._is_waiting = False
        self._attempt = 0
        self._failures = 0

    def request_answer(self) -> None:
        """Sends the request that `frame` makes over the current connection or a new one."""
        self._is_waiting = True
        self._attempt += 1
        self.context.world.after(ANSWER_MS_MAX * US_PER_MS, self._on_time_out, self._attempt)
        if self._link is None:
            self._dial()
        elif self._is_up:
            self.on_up()

    def _dial(self) -> None:
        leader = self._leader()
        if leader < 0:
            self._retry_later()
            return
        self._is_up = False
        self._target = leader
        context = self.context
        self._link = Dialled(context.network, CLIENTS, None, leader, context.find, self, self.name)

    def _leader(self) -> int:
        hosts = [host for host in self.context.hosts.values() if host.process and host.process.is_listening]
        if not hosts:
            return -1
        process = self.context.dice.choice(hosts).process
        assert process is not None
        topic = process.current.image.topics.get(self.topic.name)
        if topic is None or self.index >= len(topic.partitions) or self.topic.id not in (None, topic.topic_id):
            return -1
        partition = topic.partitions[self.index]
        if partition.leader_epoch < self.leader_epoch:
            # Clients ignore leaders of an older epoch than they know (KIP-320).
            return -1
        self.leader_epoch = partition.leader_epoch
        return partition.leader

    def on_up(self) -> None:
        self._is_up = True
        if self._is_waiting and self._link is not None:
            self._correlation_id += 1
            self.is_known = self.topic.id is None or self._is_topic_on_target()
            self._link.send(self.frame(self._correlation_id))
            self.unanswered += 1
            self.on_sent()

    def _is_topic_on_target(self) -> bool:
        process = self.context.find(self._target)
        held = None if process is None else process.table.get(self.topic.name, self.index)
        return held is not None and held.topic_id == self.topic.id

    def stop(self) -> None:
        """Sends no more requests."""
        self._is_waiting = False
        self._attempt += 1
        self.disconnect()

    def on_down(self, reason: str) -> None:
        self._link = None
        if self._is_waiting:
            self._retry_later()

    def _on_time_out(self, attempt: int) -> None:
        if self._is_waiting and attempt == self._attempt:
            self.disconnect()
            self._retry_later()

    def disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _retry_later(self) -> None:
        self._attempt += 1
        delay_ms = BACK_OFF_MS[min(self._failures, len(BACK_OFF_MS) - 1)]
        self._failures += 1
        self.context.world.after(delay_ms * US_PER_MS, self._retry, self._attempt)

    def _retry(self, attempt: int) -> None:
        if self._is_waiting and attempt == self._attempt:
            self.request_answer()

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        correlation_id = int.from_bytes(buffer[start : start + 4], "big")
        if self._is_waiting and correlation_id == self._correlation_id:
            self.unanswered -= 1
            self.on_answer(buffer, start, end)

    def on_error(self, code: int) -> None:
        assert code in RETRIED, f"{self.name} is answered {ErrorCode(code).name}"
        if code not in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS):
            self.disconnect()
        self._retry_later()

    def finish_request(self) -> None:
        self._is_waiting = False
        self._failures = 0

    @property
    def is_busy(self) -> bool:
        return self._is_waiting

    @abstractmethod
    def on_sent(self) -> None:
        """Called when the request is sent."""

    @abstractmethod
    def frame(self, correlation_id: int) -> bytes: ...

    @abstractmethod
    def on_answer(self, buffer: memoryview, start: int, end: int) -> None: ...


class Producer(Client):
    """A producer. If it `is_idempotent`, its records must not be duplicated or reordered."""

    def __init__(
        self,
        number: int,
        index: int,
        acks: int,
        is_idempotent: bool,
        context: SimulationContext,
        promises: Promises,
        note: Callable[[str], object],
        topic: Topic = ORDERS,
    ) -> None:
        super().__init__(f"p{number}", index, context, note, topic)
        self.acks = acks
        self.producer_id = 1_000 + number if is_idempotent else -1
        self._promises = promises
        self._value_count = 0
        self._batch = b""
        self._crc = 0
        self._count = 0
        # Batches whose requests may still be on the way.
        self.strays: list[int] = []

    def produce(self, dice: random.Random) -> None:
        if self.is_busy:
            return
        count = dice.randint(1, 3)
        values = [f"{self.name}:{number}".encode() for number in range(self._value_count, self._value_count + count)]
        now_ms = BEGAN_MS + self.context.world.now_ms
        self._batch = build_numbered_batch(values, now_ms, self.producer_id, self._value_count)
        self._crc = crc_of(self._batch)
        self._promises.note_sent(self.index, self._crc)
        self._value_count += count
        self._count = count
        self.unanswered = 0
        self.request_answer()

    def frame(self, correlation_id: int) -> bytes:
        return produce_frame(correlation_id, self.topic.name, self.index, self._batch, self.acks, SETTLE_MS_MAX)

    def on_sent(self) -> None:
        if not self.acks:
            self.finish_request()

    def on_answer(self, buffer: memoryview, start: int, end: int) -> None:
        _, body = decode_response_header(ApiKey.PRODUCE, PRODUCE_VERSION, buffer, start, end)
        answer: Any = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, buffer, body, end)
        partition = answer.responses[0].partition_responses[0]
        if partition.error_code:
            self.on_error(partition.error_code)
            return
        self.finish_request()
        self._look_for_strays()
        if self.acks == ACKS_ALL and self.is_known:
            self.note(f"{self.name} has {self._count} records acknowledged at {self.index}:{partition.base_offset}")
            self._promises.note_acknowledgement(self.index, partition.base_offset, self._crc, self.name)

    def stop(self) -> None:
        if self.is_busy:
            self._look_for_strays()
        super().stop()

    def _look_for_strays(self) -> None:
        if self.unanswered:
            self.strays.append(self._crc)


class Consumer(Client):
    """A consumer, which continues at its last position."""

    def __init__(
        self,
        index: int,
        context: SimulationContext,
        promises: Promises,
        note: Callable[[str], object],
        topic: Topic = ORDERS,
    ) -> None:
        super().__init__(f"c{index}", index, context, note, topic)
        self.position = 0
        self._promises = promises
        self._asked_epoch = -1

    def on_sent(self) -> None:
        """Does nothing: only the response matters."""

    def consume(self) -> None:
        if not self.is_busy:
            self.request_answer()

    def frame(self, correlation_id: int) -> bytes:
        return fetch_frame(correlation_id, self.topic, self.index, self.position, self.leader_epoch)

    def on_answer(self, buffer: memoryview, start: int, end: int) -> None:
        version = fetch_version(self.topic)
        _, body = decode_response_header(ApiKey.FETCH, version, buffer, start, end)
        answer: Any = decode_response(ApiKey.FETCH, version, buffer, body, end)
        partition = answer.responses[0].partitions[0]
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.position < self._promises.start_max(
            self.index
        ):
            self.note(f"{self.name} does not find {self.index}:{self.position}")
            self.position = self._promises.start_max(self.index)
        if partition.error_code:
            self.disconnect()
            self.on_error(partition.error_code)
            return
        self.finish_request()
        for batch in parse(partition.records or b""):
            if batch.last_offset >= self.position:
                self._promises.note_read(self.index, self.position, batch, self.name)
                self.position = batch.last_offset + 1

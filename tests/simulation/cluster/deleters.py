"""Clients that delete the records below an offset (DeleteRecords, LOG-46), one for each partition."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response
from brokers.engine.protocol.headers import decode_response_header
from tests.simulation.cluster.broker import SimulationContext
from tests.simulation.cluster.clients import Client
from tests.simulation.cluster.promises import Promises
from tests.simulation.cluster.records import DELETE_RECORDS_VERSION, ORDERS, Topic, delete_records_frame

# Time-out of a request, during which the leader waits for its followers.
FOLLOWERS_MS_MAX: Final = 600
# Maximum number of records that one request deletes.
RECORDS_MAX: Final = 30


class Deleter(Client):
    """A client that retries until the records below its offset are reported as deleted."""

    def __init__(
        self,
        index: int,
        context: SimulationContext,
        promises: Promises,
        note: Callable[[str], object],
        topic: Topic = ORDERS,
    ) -> None:
        super().__init__(f"d{index}", index, context, note, topic)
        self.offset = 0
        self._promises = promises

    def delete(self, dice: random.Random) -> None:
        if self.is_busy:
            return
        end = self._promises.end(self.index)
        self.offset = min(end, self.offset + dice.randint(0, RECORDS_MAX))
        self._promises.note_deletion_request(self.index, self.offset)
        self.request_answer()

    def on_sent(self) -> None:
        """Does nothing: only the response matters."""

    def frame(self, correlation_id: int) -> bytes:
        return delete_records_frame(correlation_id, self.topic.name, self.index, self.offset, FOLLOWERS_MS_MAX)

    def on_answer(self, buffer: memoryview, start: int, end: int) -> None:
        _, body = decode_response_header(ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, buffer, start, end)
        answer: Any = decode_response(ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, buffer, body, end)
        partition = answer.topics[0].partitions[0]
        if partition.error_code:
            self.on_error(partition.error_code)
            return
        self.finish_request()
        self.note(f"{self.name} is told that {self.index} starts at {partition.low_watermark}")
        if self.is_known:
            self._promises.note_deletion(self.index, partition.low_watermark, self.name)

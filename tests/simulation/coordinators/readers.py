"""Readers of committed records, and observers of committed offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from brokers.engine.handlers.groups.find_coordinator import GROUP
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.simulation.cluster.records import TOPIC
from tests.simulation.coordinators.clients import ClientContext, Machine, NoAnswer
from tests.simulation.coordinators.group_promises import GroupPromises
from tests.simulation.coordinators.ledger import parse
from tests.simulation.coordinators.offsets import committed, fetch
from tests.simulation.coordinators.transaction_promises import TransactionPromises

READ_COMMITTED: Final = 1
BYTES_MAX: Final = 1 << 20


class Reader(Machine):
    """Reads a partition from its start like a `read_committed` consumer."""

    def __init__(self, name: str, index: int, client_context: ClientContext, promises: TransactionPromises) -> None:
        super().__init__(name, client_context)
        self.index = index
        self.position = 0
        self._promises = promises
        self.start(self._live())

    async def _live(self) -> None:
        while True:
            await self.sleep(self.dice.choice((30, 80, 200)))
            try:
                await self._read()
            except NoAnswer:
                continue

    async def _read(self) -> None:
        wanted = FetchPartition(partition=self.index, fetch_offset=self.position, partition_max_bytes=BYTES_MAX)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=BYTES_MAX,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        response = await self.call(self.leader(TOPIC, self.index), ApiKey.FETCH, 12, request)
        partition = response.responses[0].partitions[0]
        if partition.error_code:
            # The broker lacks records that were read: it is no longer the leader, or not yet.
            return
        self._take(partition.records or b"", partition.aborted_transactions or [])

    def _take(self, data: bytes, aborted: Sequence[Any]) -> None:
        """Processes records without those of aborted transactions, like a client (TXN-24)."""
        starts = deque(sorted((transaction.first_offset, transaction.producer_id) for transaction in aborted))
        skipped: set[int] = set()
        for entry in parse(data):
            while starts and starts[0][0] <= entry.last_offset:
                skipped.add(starts.popleft()[1])
            shown: dict[int, bytes] = {}
            if entry.committed is None:
                if not (entry.is_transactional and entry.producer_id in skipped):
                    shown = {entry.base_offset + at: value for at, value in enumerate(entry.values)}
            elif not entry.committed:
                skipped.discard(entry.producer_id)
            if entry.last_offset >= self.position:
                self._promises.read(
                    self.index, max(self.position, entry.base_offset), entry.last_offset, shown, self.name
                )
                self.position = entry.last_offset + 1


class Observer(Machine):
    """Fetches committed offsets of members and of transactions.

    With `sent` it fetches everything in there once more, with retries until each is answered.
    """

    def __init__(
        self,
        name: str,
        groups: Sequence[str],
        ids: Sequence[str],
        partitions: int,
        client_context: ClientContext,
        promised: tuple[GroupPromises, TransactionPromises],
    ) -> None:
        super().__init__(name, client_context)
        self._groups = groups
        self._ids = ids
        self._partitions = partitions
        self._of_groups, self._of_transactions = promised
        self.sent: dict[Any, bool] | None = None
        self.start(self._live())

    async def _live(self) -> None:
        while self.sent is None:
            await self.sleep(self.dice.choice((20, 60, 160)))
            try:
                if self.dice.random() < 0.5:
                    await self.of_group(self.dice.choice(self._groups), self.dice.randrange(self._partitions))
                else:
                    await self.of_transactions(self.dice.choice(self._ids))
            except NoAnswer:
                continue
        await self._ask_for_all(self.sent)

    async def of_group(self, group: str, index: int) -> int | None:
        return await committed(self, self.coordinator(GROUP, group), group, index, self._of_groups, is_stable=False)

    async def of_transactions(self, id: str) -> bool:
        """Fetches the offset of a transactional id; returns True if it was answered."""
        is_stable = self.dice.random() < 0.6
        asked_us = self.client_context.now_us
        group = f"x-{id}"
        code, number = await fetch(self, self.coordinator(GROUP, group), group, 0, is_stable=is_stable)
        if code:
            assert code in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.UNSTABLE_OFFSET_COMMIT,
            ), f"{self.name} asks for offsets: {ErrorCode(code).name}"
            return False
        now_us = self.client_context.now_us
        self._of_transactions.offsets_found(id, number, self.name, asked_us, now_us, is_stable=is_stable)
        return True

    async def _ask_for_all(self, sent: dict[Any, bool]) -> None:
        for what in sent:
            while not sent[what]:
                sent[what] = await self._tells(what)

    async def _tells(self, what: Any) -> bool:
        """Fetches the offset of a transactional id, or of a group and partition; returns True if it was answered."""
        try:
            if isinstance(what, str):
                return await self.of_transactions(what)
            return await self.of_group(*what) is not None
        except NoAnswer:
            return False

"""Transactional producers for the scripts. A label of None asks without writing the answer down."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.offsets import OffsetCommitRequestPartition
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differential.batches import TRANSACTIONAL, batch
from tests.differential.play import LEADER_S, Player
from tests.differential.scripts.produce import produced

CONCURRENT = 51
TIMEOUT_MS = 60_000
# From this version on several transactions are asked for at once, by brokers.
BATCHES_FROM = 4
Partitions = Mapping[str, Sequence[int]]


def added(topics: Partitions) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in topics.items()]


def transactional(player: Player, topic: str, records: bytes, id: str | None, version: int, **more: Any) -> Any:
    return player.call(ApiKey.PRODUCE, version, produced(topic, records, transactional_id=id, **more))


class Transactional:
    """A producer, and the id and epoch that it was given. `sequences`: the next one, by topic and partition."""

    def __init__(self, player: Player, name: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.at, self.name, self.timeout_ms = player, name, timeout_ms
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def begun(self, topics: Partitions | None = None) -> Transactional:
        """With an id, and these partitions in its transaction."""
        self.init(None)
        if topics:
            self.add(None, topics)
        return self

    def init(self, label: str | None, version: int = 4, **changes: Any) -> Any:
        wanted = {"transactional_id": self.name, "transaction_timeout_ms": self.timeout_ms, **changes}
        answer = self._ask(label, ApiKey.INIT_PRODUCER_ID, version, InitProducerIdRequest(**wanted))
        if answer.error_code == 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return answer

    def add(self, label: str | None, topics: Partitions, version: int = 3, **changes: Any) -> Any:
        wanted = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": added(topics),
            **{f"v3_and_below_{name}": value for name, value in changes.items()},
        }
        return self._ask(label, ApiKey.ADD_PARTITIONS_TO_TXN, version, AddPartitionsToTxnRequest(**wanted))

    def entry(self, topics: Partitions, *, verify_only: bool = False, **changes: Any) -> AddPartitionsToTxnTransaction:
        """A transaction as brokers name it to each other."""
        wanted = {
            "transactional_id": self.at.inside(self.name),
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "verify_only": verify_only,
            "topics": added({self.at.inside(name): indexes for name, indexes in topics.items()}),
            **changes,
        }
        return AddPartitionsToTxnTransaction(**wanted)

    def add_offsets(self, label: str | None, group: str, version: int = 3, **changes: Any) -> Any:
        wanted = {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "group_id": group,
            **changes,
        }
        return self._ask(label, ApiKey.ADD_OFFSETS_TO_TXN, version, AddOffsetsToTxnRequest(**wanted))

    def commit_offsets(
        self,
        label: str | None,
        group: str,
        topics: Mapping[str, Sequence[OffsetCommitRequestPartition]],
        version: int = 3,
        **changes: Any,
    ) -> Any:
        wanted = {
            "transactional_id": self.name,
            "group_id": group,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "topics": [
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=offset.partition_index,
                            committed_offset=offset.committed_offset,
                            committed_leader_epoch=offset.committed_leader_epoch,
                            committed_metadata=offset.committed_metadata,
                        )
                        for offset in offsets
                    ],
                )
                for name, offsets in topics.items()
            ],
            **changes,
        }
        return self._ask(label, ApiKey.TXN_OFFSET_COMMIT, version, TxnOffsetCommitRequest(**wanted))

    def batch(self, *values: bytes, sequence: int = 0, attributes: int = TRANSACTIONAL, **more: Any) -> bytes:
        wanted = {"producer_id": self.id, "producer_epoch": self.epoch, **more}
        return batch(*values, attributes=attributes, base_sequence=sequence, **wanted)

    def produce(self, label: str | None, topic: str, *values: bytes, partition: int = 0, version: int = 9) -> Any:
        """Values in the order of this producer's sequence."""
        place = (topic, partition)
        sequence = self.sequences.get(place, 0)
        records = self.batch(*values, sequence=sequence)
        request = produced(topic, records, partition=partition, transactional_id=self.name)
        answer = self._ask(label, ApiKey.PRODUCE, version, request)
        if answer.responses[0].partition_responses[0].error_code == 0:
            self.sequences[place] = sequence + len(values)
        return answer

    def end(self, label: str | None, *, committed: bool, version: int = 3, **changes: Any) -> Any:
        wanted = {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "committed": committed,
            **changes,
        }
        return self._ask(label, ApiKey.END_TXN, version, EndTxnRequest(**wanted))

    def finish(self, *, committed: bool) -> None:
        """Ends the transaction; returns when every partition knows."""
        answer = self.end(None, committed=committed)
        assert answer.error_code == 0, answer
        self.until("CompleteCommit" if committed else "CompleteAbort")

    def until(self, state: str) -> None:
        """Waits until the coordinator says that the transaction is in this state."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        deadline = time.monotonic() + LEADER_S
        while True:
            (result,) = self.at.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
            if result.transaction_state == state:
                return
            assert time.monotonic() < deadline, f"the transaction stays, wanted {state}: {result}"

    def _ask(self, label: str | None, api_key: int, version: int, message: Any) -> Any:
        if label is None:
            return self.at.call(api_key, version, message)
        return self.at.ask(label, api_key, version, message)

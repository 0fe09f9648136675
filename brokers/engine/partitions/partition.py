"""One partition as its leader sees it (signatures; see the package docstring for the use)."""

from __future__ import annotations

from brokers.engine.partitions.results import AppendResult, ListedOffset, ReadResult
from brokers.engine.partitions.waiting import Wait


class Partition:
    """`topic` is the internal name. Read its fields freely; only the table and replication change its role."""

    topic: str
    index: int
    topic_id: bytes
    leader_epoch: int
    is_leader: bool
    high_watermark: int
    waits: set[Wait]

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def append(self, records: memoryview, now_ms: int, *, acks: int, produce_version: int) -> AppendResult: ...

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        isolation: int = 0,
        current_leader_epoch: int = -1,
    ) -> ReadResult: ...

    def list_offsets(
        self, timestamp: int, *, isolation: int, version: int, current_leader_epoch: int = -1
    ) -> ListedOffset: ...

    def end_offset_for_epoch(self, leader_epoch: int, current_leader_epoch: int = -1) -> tuple[int, int, int]: ...

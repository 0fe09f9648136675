"""Every partition this broker holds (signatures; see the package docstring for the use)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from brokers.engine.partitions.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    roots: tuple[Path, ...]
    broker_id: int
    cluster_id: str
    defaults: Mapping[str, str]  # topic config keys that this broker sets for all topics


class PartitionTable:
    offline_directories: dict[Path, str]  # root -> reason

    def __init__(self, settings: StorageSettings) -> None: ...

    def recover(self, now_ms: int) -> None:
        """Locks the roots and loads every partition found there, none of them leading."""

    def get(self, topic: str, index: int) -> Partition | None: ...

    def __iter__(self) -> Iterator[Partition]: ...

    def become_leader(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        config: Mapping[str, str],
        *,
        now_ms: int,
        replicas: tuple[int, ...] = (),
        isr: tuple[int, ...] = (),
    ) -> Partition: ...

    def resign(self, topic: str, index: int) -> None: ...

    def delete(self, topic: str, index: int, *, now_ms: int) -> None: ...

    def update_config(self, topic: str, config: Mapping[str, str]) -> None: ...

    def size_bytes(self, prefix: str = "") -> int:
        """Bytes on disk of all partitions whose internal topic starts with `prefix` (an instance's is `ins-x.`)."""

    def maintain(self, now_ms: int) -> None:
        """Retention, delayed file removal, producer expiry, idle descriptors; call every few seconds."""

    def plan_flush(self) -> object:
        """A job with `run()` (any thread: fsyncs, checkpoints) and `finish()` (this thread: recovery points move)."""

    def close(self, *, broker_epoch: int) -> None:
        """Clean stop: flush, checkpoints, `.kafka_cleanshutdown`, unlock."""

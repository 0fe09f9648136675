"""Offsets for the scripts: committed, fetched, deleted. A label of None asks without writing the answer down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.differential.play import Player

GROUPS_FROM = 8
Topics = Mapping[str, Sequence[OffsetCommitRequestPartition]]


def offset(index: int, at: int, metadata: str | None = "", **more: Any) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition_index=index, committed_offset=at, committed_metadata=metadata, **more)


class Committing:
    """OffsetCommit for one group in one version; the topic is the first script's to make."""

    topic = "diff.committed"

    def __init__(self, player: Player, group: str, version: int) -> None:
        self.player, self.group, self.version = player, group, version

    def ask(
        self,
        label: str | None,
        *offsets: OffsetCommitRequestPartition,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        group: str | None = None,
        topics: Topics | None = None,
        retention_ms: int = -1,
    ) -> Any:
        named = {self.topic: offsets or (offset(0, 5),)} if topics is None else topics
        request = OffsetCommitRequest(
            group_id=self.group if group is None else group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=name, partitions=list(result)) for name, result in named.items()],
        )
        return self.player.begin(label, ApiKey.OFFSET_COMMIT, self.version, request).answer()


def wanted(version: int, group: str, topics: Mapping[str, Sequence[int]] | None, **more: Any) -> OffsetFetchRequest:
    """A question for one group's offsets; None asks for all."""
    if version >= GROUPS_FROM:
        return OffsetFetchRequest(groups=[of_group(group, topics)], **more)
    asked = [
        OffsetFetchRequestTopic(name=name, partition_indexes=list(result)) for name, result in (topics or {}).items()
    ]
    return OffsetFetchRequest(group_id=group, topics=None if topics is None else asked, **more)


def of_group(group: str, topics: Mapping[str, Sequence[int]] | None, **more: Any) -> OffsetFetchRequestGroup:
    asked = [
        OffsetFetchRequestTopics(name=name, partition_indexes=list(result)) for name, result in (topics or {}).items()
    ]
    return OffsetFetchRequestGroup(group_id=group, topics=None if topics is None else asked, **more)


def fetch(
    player: Player, label: str | None, version: int, group: str, topics: Mapping[str, Sequence[int]] | None, **more: Any
) -> Any:
    return player.begin(label, ApiKey.OFFSET_FETCH, version, wanted(version, group, topics, **more)).answer()

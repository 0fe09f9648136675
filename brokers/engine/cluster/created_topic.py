"""Result of planning CreateTopics and CreatePartitions."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from brokers.contract.documents import TopicDocument
from brokers.engine.cluster import stored_bytes


@dataclass(frozen=True, kw_only=True)
class CreatedTopic:
    """A topic that was or, with `validate_only`, would be written; `assignment` has the replicas of all partitions."""

    internal_name: str
    user_name: str
    instance_id: str | None
    topic_id: bytes
    assignment: Mapping[int, tuple[int, ...]]
    config: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        return len(self.assignment[0])

    @property
    def document(self) -> TopicDocument:
        return TopicDocument(topic_id=encode_topic_id(self.topic_id), assignment=dict(self.assignment), identified=True)

    @cached_property
    def stored_bytes(self) -> int:
        replicas = sum(map(len, self.assignment.values()))
        return stored_bytes.of_topic(self.internal_name, self.user_name, self.config, len(self.assignment), replicas)


def encode_topic_id(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()

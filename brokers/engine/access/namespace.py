"""Namespace of a connection: translation between the names that its client uses and internal names (CKA-9, CKA-15…17).

It refers to the indexes of the cluster metadata image without copying them, so it is cheap to make. The name of another
instance's topic and a name that does not exist are looked up in the same way (CKA-10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from instances import naming


class NamespacedTopic(Protocol):
    """The part of a topic that a namespace uses; `cluster.image.TopicImage` implements it."""

    @property
    def name(self) -> str: ...
    @property
    def user_name(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def is_hidden(self) -> bool: ...


T = TypeVar("T", bound=NamespacedTopic)


@dataclass(frozen=True, slots=True)
class Namespace(Generic[T]):
    """Names that one instance's clients use.

    `topics` has the UTF-8 bytes of a client's topic name as key: `namespace.topics.get(name)` is the hot path. With
    `instance_id` None it is the namespace of the cluster itself, which uses internal names and sees every topic.
    """

    instance_id: str | None
    topics: Mapping[bytes, T]
    topics_by_id: Mapping[bytes, T]

    def topic_by_id(self, topic_id: bytes) -> T | None:
        """Returns a topic by its id (CKA-19). Ids are global, so topics of other instances are filtered out here."""
        topic = self.topics_by_id.get(topic_id)
        if topic is None or self.instance_id is None:
            return topic
        return None if topic.instance_id != self.instance_id or topic.is_hidden else topic

    def shown(self, topic: T) -> str:
        """Returns the name of a visible topic in responses."""
        return topic.name if self.instance_id is None else topic.user_name

    def internal_topic(self, name: str) -> str:
        """Returns the internal name that a topic of this name has, or would have."""
        return name if self.instance_id is None else naming.internal_topic(self.instance_id, name)

    def internal_id(self, name: str) -> str:
        """Returns the internal form of a client's group id or transactional id (CKA-16)."""
        return name if self.instance_id is None else naming.internal_scoped(self.instance_id, name)

    def client_id_of(self, internal: str) -> str | None:
        """Returns the client's form of an internal group id or transactional id; None for another instance's id."""
        return internal if self.instance_id is None else naming.plain_scoped(self.instance_id, internal)

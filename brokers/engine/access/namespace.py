"""A connection's view of names: which topic a wire name means, and what the owner calls an internal one (CKA-9,
CKA-15…17).

Built over the indexes of the cluster's image without copying them, so making one costs nothing. A name of another
instance and a name that does not exist are the same miss (CKA-10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from instances import naming


class NamedTopic(Protocol):
    """What a namespace needs of a topic; `cluster.image.TopicImage` fits."""

    @property
    def name(self) -> str: ...
    @property
    def user_name(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def is_hidden(self) -> bool: ...


T = TypeVar("T", bound=NamedTopic)


@dataclass(frozen=True, slots=True)
class Namespace(Generic[T]):
    """`topics` is keyed by the wire bytes of the name the client uses: `namespace.topics.get(name)` is the hot path.

    `instance_id` None is the cluster's own identity, which uses internal names and sees every topic.
    """

    instance_id: str | None
    topics: Mapping[bytes, T]
    topics_by_id: Mapping[bytes, T]

    def topic_by_id(self, topic_id: bytes) -> T | None:
        """CKA-19: ids are global, so a foreign one must be refused here."""
        topic = self.topics_by_id.get(topic_id)
        if topic is None or self.instance_id is None:
            return topic
        return None if topic.instance_id != self.instance_id or topic.is_hidden else topic

    def shown(self, topic: T) -> str:
        """The name of a visible topic in answers."""
        return topic.name if self.instance_id is None else topic.user_name

    def internal_topic(self, name: str) -> str:
        """The internal name a topic of this name has or would have."""
        return name if self.instance_id is None else naming.internal_topic(self.instance_id, name)

    def internal_id(self, name: str) -> str:
        """Group ids and transactional ids on the way in (CKA-16)."""
        return name if self.instance_id is None else naming.internal_scoped(self.instance_id, name)

    def shown_id(self, internal: str) -> str | None:
        """Group ids and transactional ids on the way out; None for somebody else's, which must not be shown."""
        return internal if self.instance_id is None else naming.plain_scoped(self.instance_id, internal)

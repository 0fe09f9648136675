"""Documents of single topics for brokers: address lists, and deleted topics that may be restored."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode

from brokers.contract.documents import InstanceTopicDocument
from brokers.provisioning.publisher import Publisher
from instances import naming
from instances.models import DeletedTopic, Instance, TopicAllowList
from instances.topics import allow_lists


def publish(instance: Instance, publisher: Publisher) -> None:
    """Publishes the documents of topics that need one. Deletes rows of restored topics once their restoration is
    published, and rows of deleted topics that do not exist any more.
    """
    lists_by_topic = {
        deleted_topic.topic: deleted_topic for deleted_topic in TopicAllowList.objects.filter(instance=instance)
    }
    deleted_by_topic = {
        deleted_topic.topic: deleted_topic for deleted_topic in DeletedTopic.objects.filter(instance=instance)
    }
    for name in sorted({*lists_by_topic, *deleted_by_topic}):
        deleted_topic = deleted_by_topic.get(name)
        internal_name = naming.internal_topic(instance.pk, name)
        if publisher.topic_exists(internal_name):
            publisher.publish_topic(
                instance.pk, internal_name, document_of(name, lists_by_topic.get(name), deleted_topic)
            )
            if deleted_topic is not None and deleted_topic.is_restored:
                DeletedTopic.objects.filter(pk=deleted_topic.pk, is_restored=True).delete()
        elif deleted_topic is not None:
            DeletedTopic.objects.filter(pk=deleted_topic.pk, topic_id=deleted_topic.topic_id).delete()


def document_of(
    name: str, allow_list: TopicAllowList | None, deleted_topic: DeletedTopic | None
) -> InstanceTopicDocument:
    """Returns the document of one topic. Pure."""
    columns = (
        {} if allow_list is None else {column: tuple(getattr(allow_list, column)) for column in allow_lists.COLUMNS}
    )
    is_hidden = deleted_topic is not None and not deleted_topic.is_restored
    topic_id = document_topic_id(deleted_topic.topic_id) if deleted_topic is not None and is_hidden else ""
    return InstanceTopicDocument(name=name, deleted_topic_id=topic_id, **columns)


def document_topic_id(topic_id: str) -> str:
    """Returns the id of a topic in the form of topic documents."""
    return urlsafe_b64encode(uuid.UUID(topic_id).bytes).rstrip(b"=").decode()

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
    lists_by_topic = {row.topic: row for row in TopicAllowList.objects.filter(instance=instance)}
    deleted = {row.topic: row for row in DeletedTopic.objects.filter(instance=instance)}
    for name in sorted({*lists_by_topic, *deleted}):
        row = deleted.get(name)
        internal = naming.internal_topic(instance.pk, name)
        if publisher.topic_exists(internal):
            publisher.publish_topic(instance.pk, internal, document_of(name, lists_by_topic.get(name), row))
            if row is not None and row.is_restored:
                DeletedTopic.objects.filter(pk=row.pk, is_restored=True).delete()
        elif row is not None:
            DeletedTopic.objects.filter(pk=row.pk, topic_id=row.topic_id).delete()


def document_of(name: str, allow_list: TopicAllowList | None, deleted: DeletedTopic | None) -> InstanceTopicDocument:
    """Returns the document of one topic. Pure."""
    columns = (
        {} if allow_list is None else {column: tuple(getattr(allow_list, column)) for column in allow_lists.COLUMNS}
    )
    is_hidden = deleted is not None and not deleted.is_restored
    topic_id = encoded(deleted.topic_id) if deleted is not None and is_hidden else ""
    return InstanceTopicDocument(name=name, deleted_topic_id=topic_id, **columns)


def encoded(topic_id: str) -> str:
    """Returns the id of a topic in the form of topic documents."""
    return urlsafe_b64encode(uuid.UUID(topic_id).bytes).rstrip(b"=").decode()

"""Presence of a topic: shown by brokers, not shown yet, deleted and restorable, or unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from django.utils.translation import gettext_noop

from instances import interfaces
from instances.choices import TopicState
from instances.interfaces import ConfigEntry, TopicDescription
from instances.models import DeletedTopic, Instance
from instances.topics.pending import PendingTopic, pending_topics
from tenants.errors import Conflict, Message, NotFound

NOT_READY_DETAILS = {
    TopicState.BEING_CREATED: gettext_noop("Topic %(name)s is being created. Try again in a second."),
    TopicState.BEING_RESTORED: gettext_noop("Topic %(name)s is being restored. Try again in a second."),
}


class TopicNotReady(Conflict):
    """The topic was created or restored, and brokers do not show it yet."""

    code = "topic_not_ready"

    def __init__(self, topic: PendingTopic) -> None:
        super().__init__(Message(NOT_READY_DETAILS[TopicState(topic.state)], name=topic.name), retry_after_s=1)
        self.topic = topic


class TopicDeleted(NotFound):
    """The topic was deleted and can be restored."""

    def __init__(self, row: DeletedTopic) -> None:
        super().__init__(Message(gettext_noop("Topic %(name)s was deleted. It can be restored."), name=row.topic))
        self.row = row


def describe_topic(instance: Instance, name: str) -> TopicDescription:
    """Returns a topic as brokers describe it.

    Raises `TopicNotReady` for one that they do not show yet, `TopicDeleted` for one that can be restored (brokers
    show it for a moment after its deletion), and `NotFound` for any other.
    """
    with _errors_of_absence(instance, name) as require_other_topic:
        description = interfaces.data_plane.implementation.topic(instance.pk, name)
        require_other_topic(description)
    return description


def describe_topic_with_config(instance: Instance, name: str) -> tuple[TopicDescription, Sequence[ConfigEntry]]:
    """Returns a topic and its configuration as brokers describe them. Raises the errors of `describe_topic`."""
    with _errors_of_absence(instance, name) as require_other_topic:
        description, config = interfaces.data_plane.implementation.topic_with_config(instance.pk, name)
        require_other_topic(description)
    return description, config


@contextmanager
def _errors_of_absence(instance: Instance, name: str) -> Iterator[Callable[[TopicDescription], None]]:
    """Raises the errors of `describe_topic` instead of a `NotFound` from its block. Yields a function that raises
    `TopicDeleted` for a description of the deleted topic, which brokers still showed.
    """
    row = DeletedTopic.objects.filter(instance=instance, topic=name, is_restored=False).first()

    def require_other_topic(description: TopicDescription) -> None:
        if row is not None and row.topic_id == description.topic_id:
            raise TopicDeleted(row)

    try:
        with not_ready_if_pending(instance, name):
            yield require_other_topic
    except TopicDeleted:
        raise
    except NotFound as error:
        if row is not None:
            raise TopicDeleted(row) from error
        raise


@contextmanager
def not_ready_if_pending(instance: Instance, name: str) -> Iterator[None]:
    """Raises `TopicNotReady` instead of `NotFound` while brokers may not show the topic yet."""
    try:
        yield
    except NotFound as error:
        topic = pending_topics(instance).get(name)
        if topic is None:
            raise
        raise TopicNotReady(topic) from error

"""Rows of deleted topics and users that can be restored."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from instances.naming import TOPIC_NAME_LENGTH_MAX

USER_NAME_CHARS_MAX = 255


class DeletedTopic(models.Model):
    """A topic hidden from clients, which its owner may restore. A restored one has its row until that is published."""

    instance = models.ForeignKey("instances.Instance", on_delete=models.PROTECT, related_name="deleted_topics")
    topic = models.CharField(_("topic"), max_length=TOPIC_NAME_LENGTH_MAX)
    topic_id = models.CharField(_("id of the topic"), max_length=36)
    partitions = models.PositiveIntegerField(_("partitions"))
    deleted_at = models.DateTimeField(_("deleted"))
    expires_at = models.DateTimeField(_("kept until"), db_index=True)
    is_restored = models.BooleanField(_("restored"), default=False)

    class Meta:
        ordering = ("instance", "-deleted_at")
        constraints = (models.UniqueConstraint(fields=("instance", "topic"), name="deleted_once_per_topic"),)

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.topic}"


class DeletedUser(models.Model):
    """A user that may not sign in and is not listed, until it is restored or its time is over.

    Its SCRAM credentials stay in ZooKeeper. `created_at_ms` and `secret_ids` identify the deleted user, because Kafka
    clients may delete it and create another one of this name.
    """

    instance = models.ForeignKey("instances.Instance", on_delete=models.PROTECT, related_name="deleted_users")
    name = models.CharField(_("user"), max_length=USER_NAME_CHARS_MAX)
    created_at_ms = models.BigIntegerField()
    secret_ids = models.JSONField(default=list)
    was_disabled = models.BooleanField(default=False)
    deleted_at = models.DateTimeField(_("deleted"))
    expires_at = models.DateTimeField(_("kept until"), db_index=True)

    class Meta:
        ordering = ("instance", "-deleted_at")
        constraints = (models.UniqueConstraint(fields=("instance", "name"), name="deleted_once_per_user"),)

    def __str__(self) -> str:
        return f"{self.instance_id}/users/{self.name}"

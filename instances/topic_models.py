"""Schemas by which a topic's messages are shown, and masks of their fields."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from instances.choices import MessagePart, SchemaFormat, SchemaFraming
from instances.messages.limits import MASK_CHARS_MAX
from instances.messages.schemas.limits import NAME_CHARS_MAX as SCHEMA_NAME_CHARS_MAX
from instances.naming import TOPIC_NAME_LENGTH_MAX
from tenants.ids import TypedIdField

ANY_SCHEMA_ID = -1


class TopicSchema(models.Model):
    """Schema by which keys or values of a topic are shown. With `schema_id` ANY_SCHEMA_ID it applies to framed values
    of any id. Schemas stay when a client deletes their topic, and still count towards the limit of the instance.
    """

    id = TypedIdField("sch")
    instance = models.ForeignKey("instances.Instance", on_delete=models.PROTECT, related_name="topic_schemas")
    topic = models.CharField(_("topic"), max_length=TOPIC_NAME_LENGTH_MAX)
    part = models.CharField(_("part"), max_length=8, choices=MessagePart.choices)
    format = models.CharField(_("format"), max_length=8, choices=SchemaFormat.choices)
    framing = models.CharField(_("framing"), max_length=10, choices=SchemaFraming.choices)
    schema_id = models.IntegerField(_("id of the schema"), default=ANY_SCHEMA_ID)
    message = models.CharField(_("message"), max_length=SCHEMA_NAME_CHARS_MAX, blank=True, default="")
    text = models.TextField(_("schema"))
    created_at = models.DateTimeField(_("added"), default=timezone.now)

    class Meta:
        ordering = ("instance", "topic", "part", "framing", "schema_id")
        constraints = (
            models.UniqueConstraint(
                fields=("instance", "topic", "part", "framing", "schema_id"), name="schema_once_per_id"
            ),
        )

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.topic} {self.part}"


class TopicMask(models.Model):
    """A field of a topic's messages that is hidden from roles without `messages:unmask`."""

    instance = models.ForeignKey("instances.Instance", on_delete=models.PROTECT, related_name="topic_masks")
    topic = models.CharField(_("topic"), max_length=TOPIC_NAME_LENGTH_MAX)
    part = models.CharField(_("part"), max_length=8, choices=MessagePart.choices)
    path = models.CharField(_("path"), max_length=MASK_CHARS_MAX)

    class Meta:
        ordering = ("instance", "topic", "part", "path")
        constraints = (
            models.UniqueConstraint(fields=("instance", "topic", "part", "path"), name="mask_once_per_path"),
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.topic} {self.part} {self.path}"

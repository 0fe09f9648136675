"""Rows of copies of a topic's records."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from instances.naming import TOPIC_NAME_LENGTH_MAX
from tenants.ids import TypedIdField
from tenants.message_field import MessageField

COPY_ERROR_CHARS_MAX = 500


class CopyState(models.TextChoices):
    RUNNING = "running", _("Running")
    SUCCEEDED = "succeeded", _("Done")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


class TopicCopy(models.Model):
    """Copy of the records of one topic into another one that was created for it.

    `partitions` has by partition number `[next, stop, written]`: the next offset of the source, the offset at which the
    copy ends, and the expected next offset of the target. `in_flight` is a write without a response yet:
    `{partition, at_ms, marks}`, where marks are `[records, next offset of the source]` after each of its batches.
    """

    id = TypedIdField("cpy")
    instance = models.ForeignKey("instances.Instance", on_delete=models.PROTECT, related_name="topic_copies")
    source = models.CharField(_("source"), max_length=TOPIC_NAME_LENGTH_MAX)
    source_id = models.CharField(max_length=36, editable=False)
    target = models.CharField(_("target"), max_length=TOPIC_NAME_LENGTH_MAX)
    target_id = models.CharField(max_length=36, blank=True, default="", editable=False)
    state = models.CharField(_("state"), max_length=10, choices=CopyState.choices, default=CopyState.RUNNING)
    partitions = models.JSONField(default=dict, editable=False)
    in_flight = models.JSONField(null=True, default=None, editable=False)
    total_offsets = models.BigIntegerField(_("offsets"), editable=False)
    copied_records = models.BigIntegerField(_("messages copied"), default=0, editable=False)
    copied_bytes = models.BigIntegerField(_("bytes copied"), default=0, editable=False)
    skipped_records = models.BigIntegerField(_("messages left out"), default=0, editable=False)
    missed_offsets = models.BigIntegerField(_("offsets missed"), default=0, editable=False)
    error_code = models.CharField(max_length=40, blank=True, default="", editable=False)
    error = MessageField(_("error"), max_length=COPY_ERROR_CHARS_MAX, blank=True, default="", editable=False)
    asked_by = models.CharField(_("asked by"), max_length=254)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    progress_at = models.DateTimeField(_("last progress"), default=timezone.now)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("copy of a topic")
        verbose_name_plural = _("copies of topics")
        indexes = (models.Index(fields=("state", "progress_at"), name="topic_copy_by_state"),)
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=CopyState.values), name="topic_copy_state_known"),
        )

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.source} to {self.target}"

    @property
    def percent(self) -> float:
        return 100 * self.progress

    @property
    def trouble(self) -> dict[str, str] | None:
        """Reason why the copy failed, or waits; `code` is stable."""
        return {"code": self.error_code, "detail": self.error} if self.error_code else None

    @property
    def left_offsets(self) -> int:
        return sum(max(0, stop - next_offset) for next_offset, stop, _ in self.partitions.values())

    @property
    def progress(self) -> float:
        """Share of the source's offsets that are done, 0 to 1."""
        if not self.total_offsets:
            return 1.0
        return round(1 - self.left_offsets / self.total_offsets, 3)

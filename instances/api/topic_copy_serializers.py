"""Responses of the endpoints of topic copies."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from instances.copying.models import CopyState, TopicCopy


class TopicCopyErrorOut(serializers.Serializer):
    code = serializers.CharField(help_text="`topic_gone`, `other_writer`, `stalled`, or what brokers refuse.")
    detail = serializers.CharField()


class TopicCopyOut(serializers.Serializer):
    """Copy of a topic's messages into another topic. Poll until `state` is not `running`."""

    id = serializers.CharField(allow_null=True, help_text="Null in a dry run.")
    source = serializers.CharField(help_text="Topic that is copied.")
    target = serializers.CharField(help_text="Topic that was created for the copy.")
    state = serializers.ChoiceField(choices=CopyState.choices)
    progress = serializers.FloatField(help_text="Share of the source's offsets that are done, 0 to 1.")
    total_offsets = serializers.IntegerField(
        help_text="Offsets of the source when the copy began; transactions and compaction leave gaps."
    )
    left_offsets = serializers.IntegerField()
    copied_messages = serializers.IntegerField(source="copied_records")
    copied_bytes = serializers.IntegerField()
    skipped_messages = serializers.IntegerField(
        source="skipped_records", help_text="In batches that are damaged or inflate to more than 32 MB."
    )
    missed_offsets = serializers.IntegerField(help_text="Deleted from the source before they were copied.")
    error = TopicCopyErrorOut(
        source="trouble", allow_null=True, help_text="Why it failed, or while `state` is `running`: why it waits."
    )
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, copy: TopicCopy) -> dict[str, Any]:
        representation = super().to_representation(copy)
        return {**representation, "id": None} if self.context["view"].dry_run else representation

"""Request and response of a purge of a topic."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from instances.limits import PARTITIONS_PER_TOPIC_MAX
from instances.services import Purge
from instances.topics.purging import UP_TO_END, PartitionPurge, PurgeTarget
from tenants.api.strict import Instant, StrictSerializer

OFFSET_MAX = 2**63 - 1


@extend_schema_field(
    {
        "oneOf": [
            {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": UP_TO_END, "maximum": OFFSET_MAX},
                "minProperties": 1,
                "maxProperties": PARTITIONS_PER_TOPIC_MAX,
                "example": {"0": 1200, "3": UP_TO_END},
            },
            {"type": "string", "format": "date-time", "example": "2026-11-28T00:00:00Z"},
        ]
    }
)
class Before(serializers.Field):
    """End of a purge: offsets by partition, or an instant for all partitions."""

    def to_internal_value(self, data: Any) -> PurgeTarget:
        if isinstance(data, str):
            at_ms = round(Instant().run_validation(data).timestamp() * 1_000)
            if at_ms < 0:
                raise serializers.ValidationError("Times begin with 1970.")
            return PurgeTarget(at_ms=at_ms)
        if not isinstance(data, dict) or not data:
            raise serializers.ValidationError("Give offsets by partition, or a time.")
        if len(data) > PARTITIONS_PER_TOPIC_MAX:
            raise serializers.ValidationError(f"At most {PARTITIONS_PER_TOPIC_MAX} partitions.")
        return PurgeTarget(offsets={_partition(name): _offset(offset) for name, offset in data.items()})

    def to_representation(self, value: Any) -> Any:
        return value


class PurgeIn(StrictSerializer):
    before = Before(
        help_text="First offset to keep by partition, -1 for all that is there; partitions that are not named stay as "
        "they are. Or a time: in every partition, all messages before the first one as young as it go."
    )


class PurgeErrorOut(serializers.Serializer):
    code = serializers.CharField()
    detail = serializers.CharField()


class PurgeLineOut(serializers.Serializer):
    """Effect of the purge on one partition. `end` is the offset of its next message."""

    partition = serializers.IntegerField()
    start = serializers.IntegerField(help_text="First offset before the purge.")
    end = serializers.IntegerField()
    first_offset = serializers.IntegerField(help_text="First offset after it.")
    messages = serializers.IntegerField(help_text="Offsets that go, which is the most that messages can be.")
    error = PurgeErrorOut(allow_null=True, help_text="Why this partition alone was not purged.")


class PurgeOut(serializers.Serializer):
    topic = serializers.CharField()
    messages = serializers.IntegerField(help_text="Of all partitions that were purged together.")
    partitions = PurgeLineOut(many=True)


def purge_body(purge: Purge) -> dict[str, Any]:
    """Returns the response body for a purge, or for the plan of a dry run."""
    return {
        "topic": purge.topic,
        "messages": purge.messages,
        "partitions": [_partition_body(partition, purge) for partition in purge.partitions],
    }


def _partition_body(partition: PartitionPurge, purge: Purge) -> dict[str, Any]:
    error = purge.errors.get(partition.partition)
    return {
        "partition": partition.partition,
        "start": partition.start,
        "end": partition.end,
        "first_offset": partition.start if error else partition.first_offset,
        "messages": 0 if error else partition.messages,
        "error": {"code": error.code, "detail": error.detail or error.title} if error else None,
    }


def _partition(name: Any) -> int:
    """Parses a partition number from a key of a JSON object. A number has one spelling, so that no two keys name the
    same partition.
    """
    if not isinstance(name, str) or len(name) > 4 or not name.isascii() or not name.isdigit() or str(int(name)) != name:
        raise serializers.ValidationError("Partitions are numbers from 0 on.")
    return int(name)


def _offset(offset: Any) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or not UP_TO_END <= offset <= OFFSET_MAX:
        raise serializers.ValidationError("An offset is a number from 0 on, or -1 for all that is there.")
    return offset

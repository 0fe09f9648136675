"""Requests and responses of group and transaction endpoints. Lag counts messages."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from instances.api.watching import SilentOut
from instances.groups import selectors, transaction_selectors
from instances.groups.offset_plans import ResetMode
from instances.limits import PARTITIONS_PER_TOPIC_MAX, RESET_PARTITIONS_MAX
from instances.models import TOPIC_CHARS_MAX
from tenants.api.endpoint import PageQuery
from tenants.api.strict import Choice, Instant, Integer, StrictSerializer, Text

NAME_CHARS_MAX = 1_000
OFFSET_MAX = 2**63 - 1
RESET_TOPICS_MAX = 200
NEXT_PAGE = "Ask for the next page with it; null at the end."
PARTITION_INDEX_MAX = PARTITIONS_PER_TOPIC_MAX - 1


# --- requests ---------------------------------------------------------------------------------------------------------


class GroupQuery(PageQuery):
    contains = Text(required=False, max_length=NAME_CHARS_MAX, help_text="Part of the name.")
    state = Choice(required=False, choices=selectors.STATES)


class GroupTopicQuery(StrictSerializer):
    topic = Text(required=False, max_length=TOPIC_CHARS_MAX, help_text="Only the offsets of this topic.")


class TransactionQuery(PageQuery):
    contains = Text(required=False, max_length=NAME_CHARS_MAX, help_text="Part of the transactional id.")
    state = Choice(
        required=False,
        choices=("in_flight", *transaction_selectors.STATES),
        help_text="`in_flight`: begun and not yet committed or aborted everywhere.",
    )


class OffsetsQuery(StrictSerializer):
    topic = Text(max_length=TOPIC_CHARS_MAX, help_text="Whose offsets are forgotten.")


class TopicChoice(StrictSerializer):
    name = Text(max_length=TOPIC_CHARS_MAX)
    partitions = serializers.ListField(
        child=Integer(min_value=0, max_value=PARTITION_INDEX_MAX),
        required=False,
        min_length=1,
        max_length=RESET_PARTITIONS_MAX,
        help_text="Default: all of the topic's.",
    )


class OffsetGiven(StrictSerializer):
    topic = Text(max_length=TOPIC_CHARS_MAX)
    partition = Integer(min_value=0, max_value=PARTITION_INDEX_MAX)
    offset = Integer(min_value=0, max_value=OFFSET_MAX, allow_null=True, help_text="null forgets it.")


class ResetIn(StrictSerializer):
    """The target of a reset. If `to` is `time`, `offset`, `shift` or `given`, the field `time`, `offset`, `by` or
    `offsets` is required.
    """

    to = Choice(choices=[mode.value for mode in ResetMode])
    time = Instant(required=False, help_text="To the first message that is as young as this.")
    offset = Integer(required=False, min_value=0, max_value=OFFSET_MAX)
    by = Integer(
        required=False,
        min_value=-OFFSET_MAX,
        max_value=OFFSET_MAX,
        help_text="Messages to skip; negative to read again.",
    )
    topics = serializers.ListField(
        child=TopicChoice(),
        required=False,
        min_length=1,
        max_length=RESET_TOPICS_MAX,
        help_text="Default: every partition the group has an offset of.",
    )
    offsets = serializers.ListField(
        child=OffsetGiven(),
        required=False,
        min_length=1,
        max_length=RESET_PARTITIONS_MAX,
        help_text="One by one, such as `before` of an earlier answer to put it back.",
    )


# --- responses --------------------------------------------------------------------------------------------------------


class PlaceOut(serializers.Serializer):
    topic = serializers.CharField()
    partition = serializers.IntegerField()


class WorstOut(PlaceOut):
    lag = serializers.IntegerField()


class GroupSummaryOut(serializers.Serializer):
    """A group in a list. A value that is unknown is null; `trouble` has the reason if a broker is the cause."""

    id = serializers.CharField(allow_blank=True)
    state = serializers.CharField()
    protocol_type = serializers.CharField(
        allow_blank=True, help_text="`consumer`; empty for offsets without a group of members."
    )
    coordinator = serializers.IntegerField(help_text="Broker id.")
    members = serializers.IntegerField(allow_null=True)
    partitions = serializers.IntegerField(allow_null=True, help_text="Partitions with an offset.")
    lag = serializers.IntegerField(
        allow_null=True, help_text="Null also where a partition's lag is not known or nothing is committed."
    )
    worst = WorstOut(allow_null=True, help_text="The partition with the largest lag.")
    trouble = serializers.CharField(allow_blank=True)


class GroupPageOut(serializers.Serializer):
    """One page of groups."""

    items = GroupSummaryOut(many=True)
    next_page_token = serializers.CharField(
        allow_null=True, help_text="Ask for the next page with it; null at the end."
    )
    silent = SilentOut(many=True, help_text="Brokers that did not answer: groups they coordinate are missing.")


class GroupMemberOut(serializers.Serializer):
    id = serializers.CharField()
    client_id = serializers.CharField(allow_blank=True)
    host = serializers.CharField(allow_blank=True)
    instance_id = serializers.CharField(allow_null=True, help_text="`group.instance.id` of a static member.")
    assignment = serializers.SerializerMethodField(
        help_text="Null when its bytes are not those of the consumer protocol."
    )

    def get_assignment(self, member: Any) -> list[dict[str, Any]] | None:
        if member.assignment is None:
            return None
        return [{"topic": topic, "partition": index} for topic, index in member.assignment]


class OffsetOut(PlaceOut):
    committed = serializers.IntegerField(allow_null=True, help_text="Offset of the next message; null: none.")
    metadata = serializers.CharField(allow_blank=True)
    log_start = serializers.IntegerField(allow_null=True, source="start")
    log_end = serializers.IntegerField(allow_null=True, source="end")
    lag = serializers.IntegerField(allow_null=True)
    member_id = serializers.CharField(allow_null=True, source="member.id", default=None)


class HolderOut(PlaceOut):
    """An open transaction that blocks the group's consumers of committed records."""

    transactional_id = serializers.CharField(
        source="id",
        allow_blank=True,
        help_text="Empty where no coordinator knows of it: only an operator can abort it.",
    )
    producer_id = serializers.IntegerField()
    first_offset = serializers.IntegerField(source="offset")
    open_ms = serializers.IntegerField(help_text="How long it has been open, at least.")


class GroupOut(serializers.Serializer):
    """A group with its members and offsets."""

    id = serializers.CharField(allow_blank=True)
    state = serializers.CharField(source="description.state")
    protocol_type = serializers.CharField(allow_blank=True, source="description.protocol_type")
    protocol = serializers.CharField(
        allow_blank=True, source="description.protocol", help_text="The assignor its members agreed on."
    )
    coordinator = serializers.IntegerField(source="description.coordinator")
    members = GroupMemberOut(many=True, source="description.members")
    offsets = OffsetOut(many=True, source="partitions")
    lag = serializers.IntegerField(allow_null=True)
    lag_unknown = serializers.IntegerField(
        source="unknown", help_text="Partitions with an offset that `lag` leaves out."
    )
    worst = WorstOut(allow_null=True)
    held_by = HolderOut(
        many=True, help_text="Open transactions at which consumers of committed records wait, five at most."
    )
    trouble = serializers.CharField(allow_blank=True)


class ChangeOut(PlaceOut):
    before = serializers.IntegerField(allow_null=True)
    after = serializers.IntegerField(allow_null=True)
    log_start = serializers.IntegerField(source="start")
    log_end = serializers.IntegerField(source="end")
    lag_before = serializers.IntegerField(allow_null=True)
    lag_after = serializers.IntegerField(allow_null=True)
    clipped = serializers.SerializerMethodField(
        help_text="`start` or `end` of the log, where what was asked for lies outside of it."
    )

    def get_clipped(self, change: Any) -> str | None:
        return change.clipped.value or None


class ResetOut(serializers.Serializer):
    """The offsets before and after, one entry for each partition."""

    group = serializers.CharField(allow_blank=True)
    changed = serializers.SerializerMethodField(help_text="Lines whose offset is another one.")
    offsets = ChangeOut(many=True, source="changes")

    def get_changed(self, reset: Any) -> int:
        return len(reset.changed)


class TransactionOut(serializers.Serializer):
    """A transactional id. Values that its coordinator did not report are null."""

    id = serializers.CharField(allow_blank=True)
    state = serializers.CharField()
    producer_id = serializers.IntegerField()
    producer_epoch = serializers.IntegerField(allow_null=True)
    coordinator = serializers.IntegerField(help_text="Broker id.")
    timeout_ms = serializers.IntegerField(allow_null=True)
    started_ms = serializers.IntegerField(allow_null=True, help_text="Since 1970; null while nothing is open.")
    age_ms = serializers.IntegerField(allow_null=True)
    is_overdue = serializers.BooleanField(help_text="Open for longer than its time-out allows.")
    partitions = serializers.SerializerMethodField()

    def get_partitions(self, row: Any) -> list[dict[str, Any]] | None:
        if row.partitions is None:
            return None
        return [{"topic": topic, "partition": index} for topic, index in row.partitions]


class TransactionPageOut(serializers.Serializer):
    """One page of transactional ids."""

    items = TransactionOut(many=True)
    next_page_token = serializers.CharField(
        allow_null=True, help_text="Ask for the next page with it; null at the end."
    )
    silent = SilentOut(many=True, help_text="Brokers that did not answer: ids they coordinate are missing.")


class ProducerOut(PlaceOut):
    """The producer's state at a partition's leader."""

    is_known = serializers.BooleanField(help_text="False while the leader does not answer.")
    first_offset = serializers.IntegerField(allow_null=True, help_text="Where its open transaction begins.")
    last_sequence = serializers.IntegerField(allow_null=True)
    last_timestamp_ms = serializers.IntegerField(allow_null=True)


class TransactionDetailOut(TransactionOut):
    """A transactional id with its producer in each partition of the transaction."""

    producers = ProducerOut(many=True)

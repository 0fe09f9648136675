"""Requests and responses of topic endpoints."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from instances.api.watching import SilentOut
from instances.choices import TopicState
from instances.limits import (
    ADDRESS_CHARS_MAX,
    ALLOW_LIST_ENTRIES_MAX,
    CONFIG_VALUE_CHARS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REPLICATION_FACTOR_MAX,
    TOPIC_CONFIGS_MAX,
)
from instances.models import TOPIC_CHARS_MAX
from instances.topics.listing import DEFAULT_SORT, SORTS
from tenants.api.endpoint import PageQuery
from tenants.api.strict import Choice, Integer, StrictSerializer, Text

CONFIG, RECORDS = "config", "records"
CLONE_COPIES = (CONFIG, RECORDS)
STATE_HELP = "Brokers hear of a topic that is created or restored about a second later; until then it cannot be used."


class ConfigValues(serializers.DictField):
    """Kafka's topic configs by name, values as strings."""

    def __init__(self, **kwargs: Any) -> None:
        nullable = kwargs.pop("nullable", False)
        super().__init__(child=Text(max_length=CONFIG_VALUE_CHARS_MAX, allow_null=nullable, allow_blank=True), **kwargs)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        value: dict[str, str] = super().to_internal_value(data)
        if len(value) > TOPIC_CONFIGS_MAX:
            raise serializers.ValidationError(f"At most {TOPIC_CONFIGS_MAX} values.")
        return value


class TopicIn(StrictSerializer):
    name = Text(max_length=TOPIC_CHARS_MAX, help_text="Letters, digits, dots, underscores and hyphens.")
    partitions = Integer(
        required=False,
        min_value=1,
        max_value=PARTITIONS_PER_TOPIC_MAX,
        help_text="Default: the instance's setting.",
    )
    replication_factor = Integer(
        required=False,
        min_value=1,
        max_value=REPLICATION_FACTOR_MAX,
        help_text="Copies of each partition, at most one on a broker. Default: the instance's setting.",
    )
    config = ConfigValues(required=False)


class DeleteTopicQuery(StrictSerializer):
    for_good = Choice(
        required=False, choices=("true", "false"), default="false", help_text="`true`: it cannot be restored."
    )


class CloneIn(StrictSerializer):
    name = Text(max_length=TOPIC_CHARS_MAX, help_text="Of the new topic.")
    copy = Choice(
        required=False,
        choices=CLONE_COPIES,
        default=CONFIG,
        help_text="`records`: also the messages that the topic has now; the answer is 202 with the copy.",
    )


class Addresses(serializers.ListField):
    """IP addresses and CIDRs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=Text(max_length=ADDRESS_CHARS_MAX), max_length=ALLOW_LIST_ENTRIES_MAX, **kwargs)


class AllowListIn(StrictSerializer):
    """The addresses from which a topic may be used; an empty list allows every address."""

    produce = Addresses(required=False)
    consume = Addresses(required=False)
    administer = Addresses(
        required=False,
        help_text="From where it may be deleted, shortened, grown and configured; empty: from wherever it may be "
        "produced to and consumed from.",
    )


class TopicPatch(StrictSerializer):
    """The fields to change; fields that are not given stay."""

    partitions = Integer(
        required=False, min_value=1, max_value=PARTITIONS_PER_TOPIC_MAX, help_text="The total; it only grows."
    )
    config = ConfigValues(required=False, nullable=True, help_text="null puts a value back to its default.")
    allow_list = AllowListIn(required=False)


class TopicQuery(PageQuery):
    contains = Text(required=False, max_length=TOPIC_CHARS_MAX, help_text="Part of the name.")
    sort = Choice(
        required=False,
        choices=SORTS,
        default=DEFAULT_SORT,
        help_text="A column; with - before it the largest first. What is not known comes last.",
    )


class AllowListOut(serializers.Serializer):
    produce = serializers.ListField(child=serializers.CharField(), source="produce_ips")
    consume = serializers.ListField(child=serializers.CharField(), source="consume_ips")
    administer = serializers.ListField(child=serializers.CharField(), source="administer_ips")


class PartitionOut(serializers.Serializer):
    index = serializers.IntegerField()
    leader = serializers.IntegerField(help_text="Broker id; -1 = none at the moment.")
    replicas = serializers.ListField(child=serializers.IntegerField())
    isr = serializers.ListField(child=serializers.IntegerField())


class ConfigOut(serializers.Serializer):
    name = serializers.CharField()
    value = serializers.CharField(allow_null=True)
    is_default = serializers.BooleanField()
    is_read_only = serializers.BooleanField()
    default = serializers.CharField(allow_null=True, help_text="What it is where the topic does not say.")


class TopicSummaryOut(serializers.Serializer):
    """A topic in a list."""

    name = serializers.CharField()
    topic_id = serializers.CharField()
    state = serializers.ChoiceField(choices=TopicState.choices, help_text=STATE_HELP)
    partitions = serializers.IntegerField(source="partition_count")
    replication_factor = serializers.IntegerField(allow_null=True, help_text="null while the topic is being restored.")
    size_bytes = serializers.IntegerField(
        allow_null=True, help_text="On the leaders; null while a broker does not answer."
    )
    message_count = serializers.IntegerField(allow_null=True)
    allow_list = AllowListOut(source="*")


class TopicItemOut(serializers.Serializer):
    """A topic in a list. Figures are a few seconds old in an instance with very many topics."""

    name = serializers.CharField(source="row.name")
    topic_id = serializers.CharField()
    state = serializers.ChoiceField(choices=TopicState.choices, help_text=STATE_HELP)
    partitions = serializers.IntegerField(source="row.partition_count")
    replication_factor = serializers.IntegerField(
        source="row.replication_factor", allow_null=True, help_text="null while the topic is being restored."
    )
    size_bytes = serializers.IntegerField(
        source="row.size_bytes", allow_null=True, help_text="On the leaders; null while a broker does not answer."
    )
    message_count = serializers.IntegerField(
        source="row.message_count", allow_null=True, help_text="Offsets between first and next."
    )
    produce_bytes_per_s = serializers.FloatField(
        source="row.produce_bps",
        allow_null=True,
        help_text="Over `rates_over_s`; null until brokers were asked twice, some seconds apart.",
    )
    consume_bytes_per_s = serializers.FloatField(source="row.consume_bps", allow_null=True)
    retention_ms = serializers.IntegerField(
        source="row.retention_ms", allow_null=True, help_text="-1: unlimited; null of a topic that is only compacted."
    )
    groups = serializers.IntegerField(source="row.groups", help_text="Consumer groups with a sampled lag in it.")
    lag = serializers.IntegerField(source="row.lag", allow_null=True, help_text="Of these groups together.")
    allow_list = AllowListOut(source="*")


class TopicTotalsOut(serializers.Serializer):
    """Sums over all topics that match; null if a part is not known."""

    topics = serializers.IntegerField()
    partitions = serializers.IntegerField()
    message_count = serializers.IntegerField(allow_null=True)
    size_bytes = serializers.IntegerField(allow_null=True)
    produce_bytes_per_s = serializers.FloatField(source="produce_bps", allow_null=True)
    consume_bytes_per_s = serializers.FloatField(source="consume_bps", allow_null=True)
    lag = serializers.IntegerField(allow_null=True)


class TopicPageOut(serializers.Serializer):
    """One page of topics."""

    items = TopicItemOut(many=True)
    next_page_token = serializers.CharField(
        source="next_token", allow_null=True, help_text="Ask for the next page with it; null at the end."
    )
    totals = TopicTotalsOut()
    rates_over_s = serializers.FloatField(source="table.rates_over_s", allow_null=True)
    silent = SilentOut(many=True, source="table.silent", help_text="Brokers that did not answer.")


class WarningOut(serializers.Serializer):
    code = serializers.CharField(help_text="`min_insync_above_replicas`, `limit_below_one_batch`.")
    detail = serializers.CharField()


class TopicMadeOut(TopicSummaryOut):
    """A topic that was just created."""

    warnings = WarningOut(many=True, help_text="What brokers accept, though it does not do what it says.")


class TopicOut(TopicMadeOut):
    """A topic with its partitions and configuration."""

    partition_list = PartitionOut(many=True, source="partitions")
    config = ConfigOut(many=True)

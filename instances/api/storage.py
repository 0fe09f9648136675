"""REST API of the storage of an instance, by topic, and of its forecast."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access
from instances.api.watching import SilentOut
from instances.choices import StorageWhenFull
from instances.limits import NAME_CHARS_MAX
from instances.metrics import storage
from instances.metrics.forecast import FillState
from tenants.api.base import ApiView, endpoint
from tenants.api.strict import StrictSerializer, Text
from tenants.choices import Scope


class ForecastOut(serializers.Serializer):
    """The forecast if storage continues to grow as in the last hours."""

    state = serializers.ChoiceField(
        choices=[state.value for state in FillState],
        help_text="`unknown`: there are no samples of half an hour yet. `full`: produce is refused, or about to be.",
    )
    full_in_s = serializers.IntegerField(allow_null=True, help_text="Seconds, of what is `filling` alone.")
    bytes_per_hour = serializers.IntegerField(allow_null=True, help_text="Below 0 while it gets less.")


class StorageOut(serializers.Serializer):
    """The counted storage: each partition's log at its leader, once for each of its replicas.

    Committed offsets and transaction state are not included: they have limits of their own (`/limits`), and writing
    them counts as bandwidth. Files of deleted records and topics, which are removed after a minute, are not included
    either.
    """

    bought_bytes = serializers.IntegerField()
    used_bytes = serializers.IntegerField(
        help_text="The sum over all topics, deleted ones that can be restored included: what produce is refused by."
    )
    deleted_bytes = serializers.IntegerField(help_text="Of these, deleted topics that can be restored.")
    used_percent = serializers.FloatField()
    when_full = serializers.ChoiceField(choices=StorageWhenFull.choices)
    forecast = ForecastOut()
    silent = SilentOut(many=True, help_text="Brokers that did not answer: the figures are without them.")


class TopicStorageOut(serializers.Serializer):
    name = serializers.CharField()
    partitions = serializers.IntegerField(allow_null=True, help_text="Null on a Kafka cluster.")
    leader_bytes = serializers.IntegerField(
        allow_null=True, help_text="At the leaders of its partitions; null on a Kafka cluster."
    )
    stored_bytes = serializers.IntegerField(help_text="Once for each replica: what counts.")


class StorageTopicsQuery(StrictSerializer):
    contains = Text(required=False, max_length=NAME_CHARS_MAX, help_text="Part of the name.")


class Storage(ApiView):
    tag = "Watching"

    @endpoint("get_storage", Scope.USAGE_READ, returns=StorageOut, errors=(409, 503))
    def get(self, request: Request, instance_id: str) -> Response:
        """Read the used storage, the bought storage, and the forecast of when it is full."""
        instance = access.instance(self.actor, instance_id)
        storage_use = storage.storage_of(instance)
        body = {
            "bought_bytes": storage_use.bought_bytes,
            "used_bytes": storage_use.used_bytes,
            "deleted_bytes": storage_use.deleted_bytes,
            "used_percent": round(storage_use.used_bytes * 100 / storage_use.bought_bytes, 2),
            "when_full": storage_use.when_full,
            "forecast": storage_use.forecast,
            "silent": storage_use.silent,
        }
        return self.one(body, StorageOut)


class StorageTopics(ApiView):
    tag = "Watching"

    @endpoint(
        "list_storage_topics",
        Scope.TOPICS_READ,
        query=StorageTopicsQuery,
        page_item=TopicStorageOut,
        errors=(409, 503),
    )
    def get(self, request: Request, instance_id: str) -> Response:
        """List the storage of each topic, by name."""
        instance = access.instance(self.actor, instance_id)
        topics = storage.topics_of(storage.storage_of(instance), contains=self.query.get("contains", ""))
        return self.page_items(topics, TopicStorageOut, key=lambda topic: topic.name)

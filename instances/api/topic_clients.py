"""REST API of the producers and consumers of a topic."""

from __future__ import annotations

from datetime import UTC, datetime

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access
from instances.api.topics import DATA_PLANE_ERRORS
from instances.api.watching import SilentOut
from instances.clients import topic_clients
from instances.clients.listing import CONTAINS_CHARS_MAX
from instances.clients.topic_clients import TopicClient, TopicClientPage, topic_client_page
from instances.limits import CLIENT_ADDRESSES_SHOWN_MAX, CLIENT_GROUPS_QUERIED_MAX, CLIENT_GROUPS_SHOWN_MAX
from tenants.access import permits
from tenants.api.base import ApiView, endpoint
from tenants.api.endpoint import PageQuery
from tenants.api.strict import Choice, Text
from tenants.choices import Scope

SORT = "A column; with - before it the largest first."


class TopicClientQuery(PageQuery):
    contains = Text(required=False, max_length=CONTAINS_CHARS_MAX, help_text="Part of client id, user or address.")


class ProducerQuery(TopicClientQuery):
    sort = Choice(required=False, choices=topic_clients.SORTS, default=topic_clients.DEFAULT_SORT, help_text=SORT)


class ConsumerQuery(TopicClientQuery):
    sort = Choice(
        required=False, choices=topic_clients.CONSUMER_SORTS, default=topic_clients.DEFAULT_SORT, help_text=SORT
    )


class TopicProducerOut(serializers.Serializer):
    """A user and client id that produced to the topic since the brokers' start."""

    client_id = serializers.CharField(allow_blank=True)
    user = serializers.CharField(allow_blank=True, help_text="Empty on a route without sign-in.")
    connections = serializers.IntegerField(
        help_text="Connections that this user has open now under this client id, whatever they are used for."
    )
    addresses = serializers.ListField(
        child=serializers.CharField(), help_text=f"Of these connections, the first {CLIENT_ADDRESSES_SHOWN_MAX}."
    )
    rate_bps = serializers.FloatField(
        allow_null=True,
        help_text="Bytes of record batches per second; null until the brokers were asked twice, some seconds apart.",
    )
    total_bytes = serializers.IntegerField(help_text="Since the brokers' start.")
    last_seen = serializers.SerializerMethodField(help_text="When bytes moved last, to within 10 seconds.")

    def get_last_seen(self, client: TopicClient) -> datetime | None:
        return None if client.last_seen_ms is None else datetime.fromtimestamp(client.last_seen_ms / 1_000, UTC)


class TopicGroupShareOut(serializers.Serializer):
    """Partitions of the topic that a client reads as a member of a group."""

    group = serializers.CharField()
    partitions = serializers.IntegerField()
    lag = serializers.IntegerField(allow_null=True, help_text="Messages; null where it is not known.")


class TopicConsumerOut(TopicProducerOut):
    """A user and client id that consumed from the topic since the brokers' start, or to which a group assigned some of
    its partitions.
    """

    user = serializers.CharField(
        allow_blank=True,
        help_text="Empty on a route without sign-in, and for a member of a group that has read nothing yet.",
    )
    groups = TopicGroupShareOut(
        many=True,
        help_text=f"The first {CLIENT_GROUPS_SHOWN_MAX}, of the {CLIENT_GROUPS_QUERIED_MAX} groups that are furthest "
        "behind in the topic. Empty for a consumer without a group, and without the permission `groups:read`.",
    )


class TopicProducerPageOut(serializers.Serializer):
    """One page of producers."""

    items = TopicProducerOut(many=True)
    next_page_token = serializers.CharField(
        source="next_token", allow_null=True, help_text="Ask for the next page with it; null at the end."
    )
    total = serializers.IntegerField(help_text="Clients that match.")
    rates_over_s = serializers.FloatField(allow_null=True, help_text="Span of the rates in seconds.")
    is_cut = serializers.BooleanField(
        help_text="The instance has more clients than its brokers count one by one: some may be missing."
    )
    silent = SilentOut(many=True, help_text="Brokers that did not answer: what they count is missing.")


class TopicConsumerPageOut(TopicProducerPageOut):
    """One page of consumers."""

    items = TopicConsumerOut(many=True)


class _TopicClients(ApiView):
    tag = "Clients"

    def clients(self, instance_id: str, topic: str, direction: str, *, with_groups: bool = False) -> TopicClientPage:
        """Returns the page of clients that the query asks for."""
        return topic_client_page(
            access.instance(self.actor, instance_id),
            topic,
            direction,
            with_groups=with_groups,
            contains=self.query.get("contains", ""),
            sort=self.query["sort"],
            page_token=self.query.get("page_token") or "",
            page_size=self.query["page_size"],
        )


class ProducerCollection(_TopicClients):
    @endpoint(
        "list_producers",
        Scope.CLIENTS_READ,
        query=ProducerQuery,
        returns=TopicProducerPageOut,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """List the clients that produce to a topic, by client id and user."""
        return self.one(self.clients(instance_id, name, topic_clients.PRODUCE), TopicProducerPageOut)


class ConsumerCollection(_TopicClients):
    @endpoint(
        "list_consumers",
        Scope.CLIENTS_READ,
        query=ConsumerQuery,
        returns=TopicConsumerPageOut,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """List the clients that consume from a topic, by client id and user, with their groups and lag."""
        with_groups = permits(self.actor, Scope.GROUPS_READ)
        page = self.clients(instance_id, name, topic_clients.CONSUME, with_groups=with_groups)
        return self.one(page, TopicConsumerPageOut)

"""Topics of an instance, through the data plane's own door: the same checks as for any Kafka admin client."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, selectors, services
from instances.api import topic_serializers as s
from instances.ports import PartitionLook
from instances.selectors import TopicView
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.choices import Scope

DATA_PLANE_ERRORS = (409, 503)


class TopicCollection(ApiView):
    tag = "Topics"

    @endpoint(
        "list_topics",
        Scope.TOPICS_READ,
        query=s.TopicQuery,
        page=s.TopicSummaryOut,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str) -> Response:
        """List topics by name."""
        instance = access.instance(self.actor, instance_id)
        access.require_reachable(instance)
        found = selectors.topics(instance, contains=self.query.get("contains", ""))
        return self.page_items(found, s.TopicSummaryOut, key=lambda topic: topic.name)

    @endpoint(
        "create_topic",
        Scope.TOPICS_WRITE,
        body=s.TopicIn,
        returns=s.TopicSummaryOut,
        status=201,
        errors=DATA_PLANE_ERRORS,
    )
    def post(self, request: Request, instance_id: str) -> Response:
        """Create a topic."""
        instance = access.instance(self.actor, instance_id)
        services.create_topic(acting=self.actor, instance=instance, dry_run=self.dry_run, **self.body)
        name = self.body["name"]
        made = _planned(instance.settings, self.body) if self.dry_run else selectors.topic_detail(instance, name)
        location = f"{API_ROOT}/instances/{instance_id}/topics/{name}"
        return self.one(made, s.TopicSummaryOut, status=201, location=location)


class TopicResource(ApiView):
    tag = "Topics"

    @endpoint("get_topic", Scope.TOPICS_READ, returns=s.TopicOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """Read a topic with its partitions and configuration."""
        topic = selectors.topic_detail(access.instance(self.actor, instance_id), name)
        return self.one(topic, s.TopicOut, etag=topic.etag)

    @endpoint(
        "update_topic",
        Scope.TOPICS_WRITE,
        body=s.TopicPatch,
        returns=s.TopicOut,
        match=True,
        errors=DATA_PLANE_ERRORS,
    )
    def patch(self, request: Request, instance_id: str, name: str) -> Response:
        """Add partitions, change the configuration, or say from which addresses it may be used."""
        instance = access.instance(self.actor, instance_id)
        services.hold_topic(instance, name)
        before = selectors.topic_detail(instance, name)
        self.require_match(before.etag)
        if "allow_list" in self.body:  # first: it is rolled back where the brokers refuse the rest
            lists = self.body["allow_list"]
            services.set_allow_list(
                acting=self.actor,
                instance=instance,
                topic=name,
                produce=lists.get("produce", before.produce_ips),
                consume=lists.get("consume", before.consume_ips),
                at="/allow_list",
                dry_run=self.dry_run,
            )
        if "partitions" in self.body or "config" in self.body:
            services.update_topic(
                acting=self.actor,
                instance=instance,
                name=name,
                partitions=self.body.get("partitions"),
                config=self.body.get("config"),
                dry_run=self.dry_run,
            )
        after = selectors.topic_detail(instance, name)
        return self.one(after, s.TopicOut, etag=after.etag)

    @endpoint("delete_topic", Scope.TOPICS_WRITE, status=204, match=True, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Delete a topic and its messages."""
        instance = access.instance(self.actor, instance_id)
        services.hold_topic(instance, name)
        self.require_match(selectors.topic_detail(instance, name).etag)
        services.delete_topic(acting=self.actor, instance=instance, name=name, dry_run=self.dry_run)
        return self.nothing()


def _planned(settings: dict[str, int], wanted: dict[str, object]) -> TopicView:
    """The topic a dry run would have made."""
    count = int(str(wanted.get("partitions") or settings["default_partitions"]))
    return TopicView(
        name=str(wanted["name"]),
        topic_id="",
        partitions=tuple(PartitionLook(index=index, leader=-1, replicas=(), isr=()) for index in range(count)),
        replication_factor=int(str(wanted.get("replication_factor") or settings["default_replication_factor"])),
        size_bytes=0,
        message_count=0,
        produce_ips=(),
        consume_ips=(),
    )

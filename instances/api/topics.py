"""REST API of the topics of an instance. Changes go through a Kafka admin client, so that brokers check them like those
of any client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, selectors, services
from instances.api import topic_serializers as s
from instances.api.topic_copy_serializers import TopicCopyOut
from instances.choices import TopicState
from instances.interfaces import ConfigEntry, PartitionSummary
from instances.models import Instance
from instances.selectors import TopicView
from instances.topics.allow_lists import AllowLists
from instances.topics.listing import topic_page
from instances.topics.presence import TopicNotReady
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.choices import Scope
from tenants.errors import NotFound, Unavailable

DATA_PLANE_ERRORS = (409, 503)


class TopicCollection(ApiView):
    tag = "Topics"

    @endpoint(
        "list_topics",
        Scope.TOPICS_READ,
        query=s.TopicQuery,
        returns=s.TopicPageOut,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str) -> Response:
        """List topics by name or by any other column, with their size, traffic, retention and lag."""
        instance = access.instance(self.actor, instance_id)
        access.require_reachable(instance)
        page = topic_page(
            instance,
            contains=self.query.get("contains", ""),
            sort=self.query["sort"],
            page_token=self.query.get("page_token") or "",
            page_size=self.query["page_size"],
        )
        return self.one(page, s.TopicPageOut)

    @endpoint(
        "create_topic",
        Scope.TOPICS_WRITE,
        body=s.TopicIn,
        returns=s.TopicMadeOut,
        status=201,
        errors=DATA_PLANE_ERRORS,
    )
    def post(self, request: Request, instance_id: str) -> Response:
        """Create a topic."""
        instance = access.instance(self.actor, instance_id)
        services.create_topic(acting=self.actor, instance=instance, dry_run=self.dry_run, **self.body)
        name = self.body["name"]
        topic = (
            _planned_topic(instance.settings_in_force, self.body)
            if self.dry_run
            else _created_topic(instance, self.body)
        )
        location = f"{API_ROOT}/instances/{instance_id}/topics/{name}"
        return self.one(topic, s.TopicMadeOut, status=201, location=location)


class TopicResource(ApiView):
    tag = "Topics"

    @endpoint("get_topic", Scope.TOPICS_READ, returns=s.TopicOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """Read a topic with its partitions and configuration.

        For about a second after the topic was created or restored, its `state` is `being_created` or `being_restored`,
        and it has no leaders, settings and ETag.
        """
        try:
            topic = selectors.topic_detail(access.instance(self.actor, instance_id), name)
        except TopicNotReady as error:
            return self.one(selectors.pending_view(error.topic), s.TopicOut)
        return self.one(topic, s.TopicOut, etag=topic.etag)

    @endpoint(
        "update_topic",
        Scope.TOPICS_WRITE,
        body=s.TopicPatch,
        returns=s.TopicOut,
        requires_if_match=True,
        errors=DATA_PLANE_ERRORS,
    )
    def patch(self, request: Request, instance_id: str, name: str) -> Response:
        """Add partitions, change the configuration, or change the address lists of a topic."""
        instance = access.instance(self.actor, instance_id)
        services.lock_topic(instance, name)
        before = selectors.topic_detail(instance, name)
        self.require_match(before.etag)
        is_list_changed = False
        if "allow_list" in self.body:  # first: it is rolled back if the brokers refuse the rest
            lists = self.body["allow_list"]
            is_list_changed = services.set_allow_list(
                acting=self.actor,
                instance=instance,
                topic=name,
                lists=AllowLists(*(lists.get(name, getattr(before, f"{name}_ips")) for name in AllowLists._fields)),
                pointer_prefix="/allow_list",
                publishes=False,
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
        response = self._response_after(instance, before)
        if is_list_changed:
            services.bump_and_publish(instance, dry_run=self.dry_run)
        return response

    def _response_after(self, instance: Instance, before: TopicView) -> Response:
        """Returns the response with the changed topic, or with the expected one if the brokers do not show it."""
        try:
            after = selectors.topic_detail(instance, before.name)
        except (NotFound, TopicNotReady, Unavailable):
            # The change is not undone. There is no ETag, because this is the expected topic, not one that was read.
            return self.one(_with_changes(before, self.body), s.TopicOut)
        # In a dry run the brokers still return the previous topic; the address lists are read inside the transaction.
        if self.dry_run:
            return self.one(_with_changes(after, {**self.body, "allow_list": {}}), s.TopicOut)
        return self.one(after, s.TopicOut, etag=after.etag)

    @endpoint(
        "delete_topic",
        Scope.TOPICS_WRITE,
        query=s.DeleteTopicQuery,
        status=204,
        requires_if_match=True,
        errors=DATA_PLANE_ERRORS,
    )
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Delete a topic.

        It is hidden from clients within about a second, and can be restored for some days; until then its name is taken
        and it counts as storage. With `for_good` it is deleted permanently and immediately.
        """
        instance = access.instance(self.actor, instance_id)
        services.lock_topic(instance, name)
        self.require_match(selectors.topic_detail(instance, name).etag)
        services.delete_topic(
            acting=self.actor,
            instance=instance,
            name=name,
            for_good=self.query["for_good"] == "true",
            dry_run=self.dry_run,
        )
        return self.nothing()


class TopicClone(ApiView):
    tag = "Topics"

    @endpoint(
        "clone_topic",
        Scope.TOPICS_WRITE,
        body=s.CloneIn,
        returns=s.TopicMadeOut,
        status=201,
        other_responses=((202, TopicCopyOut),),
        errors=DATA_PLANE_ERRORS,
    )
    def post(self, request: Request, instance_id: str, name: str) -> Response:
        """Clone a topic.

        Creates a topic with the partitions, replicas and settings of this one, and with its messages if `copy` is
        `records`. Messages that the topic has now are copied in the background, at a quarter of the instance's
        bandwidth and at most 5 MB/s, against its bandwidth and storage: committed ones, each in its partition, in its
        order, with key, value, headers and timestamp. Offsets begin at 0. If timestamps are those of the append, copies
        have later ones. Address lists and offsets of groups are not copied.
        """
        instance = access.instance(self.actor, instance_id)
        clone_name = self.body["name"]
        if self.body["copy"] == s.RECORDS:
            copy = services.copy_topic(
                acting=self.actor, instance=instance, topic=name, name=clone_name, dry_run=self.dry_run
            )
            location = f"{API_ROOT}/instances/{instance_id}/topic-copies/{copy.pk}"
            return self.one(copy, TopicCopyOut, status=202, location=location)
        source = selectors.topic_detail(instance, name)
        services.clone_topic(acting=self.actor, instance=instance, topic=name, name=clone_name, dry_run=self.dry_run)
        planned = {
            "name": clone_name,
            "partitions": source.partition_count,
            "replication_factor": source.replication_factor,
            "config": services.own_settings(source.config or ()),
        }
        topic = (
            _planned_topic(instance.settings_in_force, planned) if self.dry_run else _created_topic(instance, planned)
        )
        location = f"{API_ROOT}/instances/{instance_id}/topics/{clone_name}"
        return self.one(topic, s.TopicMadeOut, status=201, location=location)


def _created_topic(instance: Instance, requested: Mapping[str, Any]) -> TopicView:
    """Returns a created topic as the brokers report it, or as planned if they do not show it yet or do not answer: the
    creation is not undone then.
    """
    try:
        return selectors.topic_detail(instance, str(requested["name"]))
    except (NotFound, TopicNotReady, Unavailable):
        return _planned_topic(instance.settings_in_force, requested)


def _with_changes(before: TopicView, requested: Mapping[str, Any]) -> TopicView:
    """Returns a topic as it would be after the requested changes, without querying the brokers."""
    count = max(before.partition_count, requested.get("partitions", 0))
    added = range(before.partition_count, count)
    lists = requested.get("allow_list", {})
    config = requested.get("config", {})
    unchanged = tuple(
        entry for entry in before.config or () if entry.name not in config or _stays_default(entry, config)
    )
    set_entries = (
        ConfigEntry(name=name, value=value, is_default=value is None, is_read_only=False)  # the default is not known
        for name, value in config.items()
        if name not in {entry.name for entry in unchanged}
    )
    new_partitions = (PartitionSummary(index=index, leader=-1, replicas=(), isr=()) for index in added)
    return replace(
        before,
        partitions=(*before.partitions, *new_partitions),
        produce_ips=tuple(lists.get("produce", before.produce_ips)),
        consume_ips=tuple(lists.get("consume", before.consume_ips)),
        administer_ips=tuple(lists.get("administer", before.administer_ips)),
        config=tuple(sorted((*unchanged, *set_entries), key=lambda entry: entry.name)),
    )


def _stays_default(entry: ConfigEntry, requested: Mapping[str, str | None]) -> bool:
    """True if a config has its default value and is requested to be reset."""
    return entry.is_default and requested[entry.name] is None


def _planned_topic(settings: dict[str, int], requested: Mapping[str, Any]) -> TopicView:
    """Returns the requested topic as planned: for a dry run, and while brokers do not show the created topic."""
    count = int(str(requested.get("partitions") or settings["default_partitions"]))
    return TopicView(
        name=str(requested["name"]),
        topic_id="",
        partitions=selectors.unassigned_partitions(count),
        replication_factor=int(str(requested.get("replication_factor") or settings["default_replication_factor"] or 1)),
        size_bytes=0,
        message_count=0,
        produce_ips=(),
        consume_ips=(),
        administer_ips=(),
        config=tuple(
            ConfigEntry(name=name, value=value, is_default=False, is_read_only=False)
            for name, value in requested.get("config", {}).items()
        ),
        state=TopicState.BEING_CREATED.value,
    )

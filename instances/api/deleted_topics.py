"""REST API of deleted topics that can be restored."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api.topics import DATA_PLANE_ERRORS
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope


class DeletedTopicOut(serializers.Serializer):
    """A topic that was deleted over REST or in the console."""

    name = serializers.CharField(source="topic")
    topic_id = serializers.CharField()
    partitions = serializers.IntegerField()
    deleted_at = serializers.DateTimeField()
    restorable_until = serializers.DateTimeField(
        source="expires_at", help_text="Then it goes for good; before, where the instance needs its storage."
    )


class DeletedTopicCollection(ApiView):
    tag = "Topics"

    @endpoint("list_deleted_topics", Scope.TOPICS_READ, page_item=DeletedTopicOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """List the deleted topics that can be restored, by name. They count as storage until they are purged."""
        rows = list(services.deleted_topics(access.instance(self.actor, instance_id)))
        return self.page_items(rows, DeletedTopicOut, key=lambda row: row.topic)


class DeletedTopicResource(ApiView):
    tag = "Topics"

    @endpoint("purge_deleted_topic", Scope.TOPICS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Delete a deleted topic permanently and immediately. It cannot be restored, and its name is free."""
        instance = access.instance(self.actor, instance_id)
        services.purge_deleted_topic(acting=self.actor, instance=instance, name=name, dry_run=self.dry_run)
        return self.nothing()


class TopicRestore(ApiView):
    tag = "Topics"

    @endpoint("restore_topic", Scope.TOPICS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def post(self, request: Request, instance_id: str, name: str) -> Response:
        """Restore a deleted topic.

        Clients see it again within about a second, with its records, settings, address lists and the offsets of groups.
        Records that retention removed meanwhile are lost.
        """
        instance = access.instance(self.actor, instance_id)
        services.restore_topic(acting=self.actor, instance=instance, name=name, dry_run=self.dry_run)
        return self.nothing()

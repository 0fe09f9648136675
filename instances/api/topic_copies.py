"""REST API of copies of topics: list them with their progress, cancel and resume one."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api.topic_copy_serializers import TopicCopyOut
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope


class TopicCopyCollection(ApiView):
    tag = "Topics"

    @endpoint("list_topic_copies", Scope.TOPICS_READ, page_item=TopicCopyOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """List the copies of topics of an instance: those that run, and the last ones that ended."""
        rows = services.topic_copies(access.instance(self.actor, instance_id))
        return self.page_items(list(rows), TopicCopyOut, key=lambda copy: copy.pk)


class TopicCopyResource(ApiView):
    tag = "Topics"

    @endpoint("get_topic_copy", Scope.TOPICS_READ, returns=TopicCopyOut)
    def get(self, request: Request, instance_id: str, copy_id: str) -> Response:
        """Read a copy of a topic with its progress."""
        return self.one(services.topic_copy(access.instance(self.actor, instance_id), copy_id), TopicCopyOut)

    @endpoint("cancel_topic_copy", Scope.TOPICS_WRITE, status=204, errors=(409,))
    def delete(self, request: Request, instance_id: str, copy_id: str) -> Response:
        """Cancel a copy of a topic. The new topic stays with the messages copied so far."""
        instance = access.instance(self.actor, instance_id)
        services.cancel_copy(acting=self.actor, instance=instance, copy_id=copy_id)
        return self.nothing()


class TopicCopyResume(ApiView):
    tag = "Topics"

    @endpoint("resume_topic_copy", Scope.TOPICS_WRITE, returns=TopicCopyOut, errors=(409,))
    def post(self, request: Request, instance_id: str, copy_id: str) -> Response:
        """Continue a copy of a topic that failed or was cancelled, where it stopped."""
        instance = access.instance(self.actor, instance_id)
        return self.one(services.resume_copy(acting=self.actor, instance=instance, copy_id=copy_id), TopicCopyOut)

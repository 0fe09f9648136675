"""REST API for purging the records of a topic."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api import purge_serializers as s
from instances.api.topics import DATA_PLANE_ERRORS
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope


class TopicPurge(ApiView):
    tag = "Topics"

    @endpoint("purge_topic", Scope.TOPICS_WRITE, body=s.PurgeIn, returns=s.PurgeOut, errors=DATA_PLANE_ERRORS)
    def post(self, request: Request, instance_id: str, name: str) -> Response:
        """Delete messages of a topic permanently; the topic stays.

        Returns the deleted range by partition, also in a dry run. Kafka deletes no records of a topic that is only
        compacted: 409 `policy_violation`. Groups whose offsets are deleted continue by their `auto.offset.reset`.
        """
        purge = services.purge_topic(
            acting=self.actor,
            instance=access.instance(self.actor, instance_id),
            topic=name,
            target=self.body["before"],
            dry_run=self.dry_run,
        )
        return self.one(s.purge_body(purge), s.PurgeOut)

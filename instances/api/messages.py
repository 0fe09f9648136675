"""REST API of the messages of a topic: read and send."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api import message_serializers as s
from instances.api.topics import DATA_PLANE_ERRORS
from instances.messages import content, limits, start
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope

DEFAULT_START = "newest"


class MessageCollection(ApiView):
    tag = "Messages"

    @endpoint(
        "list_messages",
        Scope.MESSAGES_READ,
        query=s.MessageQuery,
        returns=s.MessagePageOut,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """Read messages of a topic.

        Commits no offset and affects no group. Read messages count against the instance's bandwidth and are not billed.
        A page ends early, with a token to continue, after 1.5 seconds or 8 MB.
        """
        instance = access.instance(self.actor, instance_id)
        words = self.query.get("start", DEFAULT_START)
        wanted = services.ReadRequest(
            start=start.parse(words),
            start_words=words,
            partition=self.query.get("partition"),
            limit=self.query.get("limit", limits.PAGE_MESSAGES_DEFAULT),
            contains=self.query.get("contains", ""),
            key_contains=self.query.get("key_contains", ""),
            token=self.query.get("page_token", ""),
            decode=self.query.get("decode", content.AUTO),
        )
        page = services.read_messages(acting=self.actor, instance=instance, topic=name, wanted=wanted)
        return self.one(page, s.MessagePageOut)

    @endpoint(
        "send_messages",
        Scope.MESSAGES_WRITE,
        body=s.MessagesIn,
        returns=s.SendResultsOut,
        status=201,
        dry_run=False,
        errors=DATA_PLANE_ERRORS,
    )
    def post(self, request: Request, instance_id: str, name: str) -> Response:
        """Send messages to a topic, up to 100 at once.

        Messages of one partition keep their order. They count against the instance's bandwidth and storage; sending
        them is not billed.
        """
        instance = access.instance(self.actor, instance_id)
        messages = [s.new_message(given) for given in self.body["messages"]]
        results = services.send_messages(acting=self.actor, instance=instance, topic=name, messages=messages)
        return self.one({"results": results}, s.SendResultsOut, status=201)

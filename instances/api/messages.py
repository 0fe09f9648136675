"""REST API of the messages of a topic: read, download, follow and send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api import message_serializers as s
from instances.api.message_files import message_file
from instances.api.topics import DATA_PLANE_ERRORS
from instances.messages import content, files, limits, start
from instances.messages.interfaces import FROM_NEWEST
from instances.messages.live_events import LiveMessages
from instances.messages.record_filter import texts_from
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope
from tenants.live_response import EVENT_STREAM, LiveResponse

DEFAULT_START = "newest"


LAST_EVENT_ID = "Last-Event-ID"


class EventRenderer(BaseRenderer):
    """Lets content negotiation succeed for a caller that accepts only events, which the view writes itself."""

    media_type = EVENT_STREAM
    format = "events"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return json.dumps(data).encode()


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
        A page ends early, with a token to continue, after 1.5 seconds (0.9 with a filter) or 8 MB. Fields that the
        topic masks are hidden from callers without `messages:unmask`, and filters do not find them.
        """
        instance = access.instance(self.actor, instance_id)
        read_request = _read_request(self.query)
        page = services.read_messages(acting=self.actor, instance=instance, topic=name, read_request=read_request)
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
        messages = [s.new_message(body) for body in self.body["messages"]]
        results = services.send_messages(acting=self.actor, instance=instance, topic=name, messages=messages)
        return self.one({"results": results}, s.SendResultsOut, status=201)


class FileRenderer(BaseRenderer):
    """Lets content negotiation succeed for any media type; the view writes the file itself."""

    media_type = "*/*"
    format = "file"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return json.dumps(data).encode()


class MessageFile(ApiView):
    tag = "Messages"
    renderer_classes = (JSONRenderer, FileRenderer)

    @endpoint(
        "download_messages",
        Scope.MESSAGES_READ,
        query=s.FileQuery,
        text_media_type=files.MEDIA_TYPES[files.VALUE],
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str, name: str) -> HttpResponse:
        """Download a page of messages as a file.

        The file has the messages that `list_messages` returns for the same query. The header `Link` with `rel="next"`
        has the address of the next page, if there is one. Values as they are stored (`zip`, `value`) require
        `messages:unmask` if the topic masks fields of its values.
        """
        instance = access.instance(self.actor, instance_id)
        file_format = self.query.get("form", files.JSON_LINES)
        read_request = replace(_read_request(self.query), file=file_format)
        if file_format == files.VALUE:
            read_request = replace(read_request, limit=1)
        page = services.read_messages(acting=self.actor, instance=instance, topic=name, read_request=read_request)
        response = message_file(page, name, file_format)
        if page.next_token is not None:
            query = request.GET.copy()
            query["page_token"] = page.next_token
            response["Link"] = f'<{request.path}?{query.urlencode()}>; rel="next"'
        return response


class MessageEvents(ApiView):
    tag = "Messages"
    renderer_classes = (JSONRenderer, EventRenderer)

    @endpoint(
        "stream_messages",
        Scope.MESSAGES_READ,
        query=s.StreamQuery,
        text_media_type=EVENT_STREAM,
        errors=DATA_PLANE_ERRORS,
    )
    def get(self, request: Request, instance_id: str, name: str) -> HttpResponse:
        """Stream new messages of a topic as server-sent events.

        The stream begins after the last message. The data of an event is a message as `list_messages` returns it; an
        event `trouble` has `code` and `detail` of an error that prevents reading for now. With `Last-Event-ID` the
        stream resumes where it stopped: a message may be repeated, and none is left out. It ends after a minute, or
        when the caller loses the permission to read, and counts against the instance's bandwidth.
        """
        instance = access.instance(self.actor, instance_id)
        read_request = services.ReadRequest(
            start=FROM_NEWEST,
            start_text=DEFAULT_START,
            partition=self.query.get("partition"),
            filters=texts_from(self.query),
            decode=self.query.get("decode", content.AUTO),
        )
        if request.method == "HEAD":
            return HttpResponse(content_type=EVENT_STREAM)
        stream = services.open_stream(
            acting=self.actor,
            instance=instance,
            topic=name,
            read_request=read_request,
            last_event_id=request.headers.get(LAST_EVENT_ID, ""),
        )
        return LiveResponse(LiveMessages(stream, _message_json))


def _read_request(query: Mapping[str, Any]) -> services.ReadRequest:
    start_text = query.get("start", DEFAULT_START)
    return services.ReadRequest(
        start=start.parse(start_text),
        start_text=start_text,
        partition=query.get("partition"),
        limit=query.get("limit", limits.PAGE_MESSAGES_DEFAULT),
        filters=texts_from(query),
        token=query.get("page_token", ""),
        decode=query.get("decode", content.AUTO),
    )


def _message_json(shown: services.ShownMessage) -> str:
    return json.dumps(s.MessageOut(shown).data, ensure_ascii=False)

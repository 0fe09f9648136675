"""Pages of a topic's messages: reading them, the stream of new ones, and the download of a page as a file."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from instances import selectors, services
from instances.api.message_files import message_file
from instances.messages import content, files, limits
from instances.messages.forms import ReadForm
from instances.messages.interfaces import FROM_NEWEST, NEWER, NEWEST
from instances.messages.live_events import LiveMessages
from instances.messages.start import parse
from instances.models import Instance
from instances.selectors import TopicView
from instances.services import MessagePage, ShownMessage
from instances.views.common import instance_page
from instances.views.message_rows import MessageRows
from instances.views.read_commands import ReadCommands
from instances.views.topics import partitions_tab, render_topic
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError, Invalid, NotFound
from tenants.live_response import LiveResponse
from tenants.views.base import wording

# Filters that the page collapses while none of them is used.
MORE_FILTERS = ("key", "header", "re", "key_re")


@instance_page(Scope.TOPICS_READ)
@require_http_methods(["GET", "HEAD"])
def topic_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the messages of a topic, or its partitions to members who may not read messages."""
    if not access.permits(request.actor, Scope.MESSAGES_READ):  # type: ignore[attr-defined]
        return partitions_tab(request, instance, name)
    topic = selectors.topic_detail(instance, name)
    form = _form(request, topic)
    context: dict[str, Any] = {"form": form, "query": _query(request), "rows": (), "page": None}
    context["has_more_filters"] = any(form[name].value() for name in MORE_FILTERS)
    status = 200
    if not form.is_valid():
        status = 422
    else:
        try:
            page = _read(request, instance, topic, form)
        except NotFound:
            raise
        except DomainError as error:
            context["trouble"], status = wording(error), error.http_status
        else:
            context |= _page_context(request, instance, topic, form, page)
    return render_topic(request, instance, topic, "messages", context, status=status)


@instance_page(Scope.MESSAGES_READ)
@require_GET
def messages_file(request: HttpRequest, instance: Instance, name: str, suffix: str) -> HttpResponseBase:
    """Returns the messages of a page as a file, or the value of its first message."""
    topic = selectors.topic_detail(instance, name)
    form = _form(request, topic)
    if not form.is_valid():
        raise Invalid(_("The page that this file is of cannot be read: open it first."))
    file_format = next(name for name, ending in files.SUFFIXES.items() if ending == f".{suffix}")
    return message_file(_read(request, instance, topic, form, file=file_format), name, file_format)


@instance_page(Scope.MESSAGES_READ)
@require_GET
def live_messages(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Streams new messages as server-sent events; the data of an event is a row of the page in HTML."""
    topic = selectors.topic_detail(instance, name)
    form = _form(request, topic)
    if not form.is_valid():
        raise Invalid(_("These messages cannot be read: open their page first."))
    values = form.cleaned_data
    read_request = services.ReadRequest(
        start=FROM_NEWEST, start_text=NEWEST, partition=values["partition"], filters=form.filters,
        decode=values["show"] or content.AUTO,
    )  # fmt: skip
    stream = services.open_stream(
        acting=request.actor, instance=instance, topic=name, read_request=read_request,  # type: ignore[attr-defined]
        last_event_id=request.headers.get("Last-Event-ID", ""),
    )  # fmt: skip
    language, zone = get_language(), timezone.get_current_timezone()
    rows = _rows(request, instance, name, ReadCommands(instance, name))

    def row_html(shown: ShownMessage) -> str:
        """Returns a row in the reader's language and time zone, which are not set in the threads of later steps."""
        with override(language), timezone.override(zone):
            return rows.html(shown)

    return LiveResponse(LiveMessages(stream, row_html))


def _form(request: HttpRequest, topic: TopicView) -> ReadForm:
    """Returns the form of the query. A topic with more partitions than a page reads opens with partition 0."""
    query = request.GET.copy()
    if topic.partition_count > limits.PAGE_PARTITIONS_MAX and not query.get("partition"):
        query["partition"] = "0"
    return ReadForm(query, partitions=topic.partition_count)


def _read(request: HttpRequest, instance: Instance, topic: TopicView, form: ReadForm, *, file: str = "") -> MessagePage:
    values = form.cleaned_data
    read_request = services.ReadRequest(
        start=parse(form.start_text),
        start_text=form.start_text,
        partition=values["partition"],
        limit=1 if file == files.VALUE else limits.PAGE_MESSAGES_DEFAULT,
        filters=form.filters,
        token=values["page_token"],
        decode=values["show"] or content.AUTO,
        leaders={partition.index: partition.leader for partition in topic.partitions},
        file=file,
    )
    return services.read_messages(acting=request.actor, instance=instance, topic=topic.name, read_request=read_request)  # type: ignore[attr-defined]


def _page_context(
    request: HttpRequest, instance: Instance, topic: TopicView, form: ReadForm, page: MessagePage
) -> dict[str, Any]:
    """Returns the values of a page. Its rows are newest first if the reader began with the newest."""
    values = form.cleaned_data
    newest_first = (values["start"] or NEWEST) == NEWEST
    shown = list(page.messages)
    if newest_first == (page.direction == NEWER):
        shown.reverse()
    commands = ReadCommands(instance, topic.name)
    rows = _rows(request, instance, topic.name, commands)
    is_first = not values["page_token"]
    at_newest = (page.direction == NEWER and page.is_end) or (newest_first and is_first)
    at_oldest = page.direction != NEWER and page.is_end
    return {
        "page": page,
        "rows": [rows.html(message) for message in shown],
        "is_first": is_first,
        "newest_first": newest_first,
        "words": ", ".join(form.filters.non_empty.values()),
        "jq": values["jq"],
        "has_pattern": bool(values["re"] or values["key_re"]),
        "older": None if at_oldest else page.older_token,
        "newer": None if at_newest else page.newer_token,
        "goes_on": page.next_token,
        # The page reads more of a filtered list by itself (scan.js) until the list is full.
        "scans": bool(form.filters) and page.next_token is not None and len(shown) < limits.PAGE_MESSAGES_DEFAULT,
        "reads_newer": page.direction == NEWER,
        "prepends": newest_first == (page.direction == NEWER),
        "rows_max": limits.PAGE_MESSAGES_DEFAULT,
        "scan_bytes_max": limits.SCAN_BYTES_MAX,
        "masks_values": any(message.value.is_masked for message in shown),
        "has_held_any": any(page.reached.values()),
        "kcat": commands.kcat_of_page(form),
        "curl": commands.curl_of_page(form),
    }


def _rows(request: HttpRequest, instance: Instance, topic: str, commands: ReadCommands) -> MessageRows:
    return MessageRows(instance, topic, commands, access.scopes_of(request.actor))  # type: ignore[attr-defined]


def _query(request: HttpRequest) -> str:
    """Returns the parameters of the page without its token, for links to other pages of the same list."""
    parameters = {name: value for name, value in request.GET.items() if name != "page_token" and value}
    return urlencode(parameters)

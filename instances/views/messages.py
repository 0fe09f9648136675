"""Messages of a topic: look into them, take a page away as a file, and send one."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from instances import selectors, services
from instances.api.message_serializers import MessageOut
from instances.messages import content, json_tree, limits
from instances.messages.content import Content
from instances.messages.forms import ReadForm, SendForm
from instances.messages.interfaces import NEWER, NEWEST, OFFSET
from instances.messages.start import parse
from instances.models import Instance
from instances.selectors import TopicView
from instances.services import MessagePage, ShownMessage
from instances.views.common import instance_page
from instances.views.snippet_security import PLACEHOLDER_PASSWORD, PLACEHOLDER_USER, Login, client_security
from instances.views.topics import partitions_of, render_topic
from tenants import access
from tenants.api.base import API_ROOT
from tenants.choices import Scope
from tenants.errors import DomainError, Invalid, NotFound
from tenants.mails import public_url
from tenants.views.base import add_errors, wording

LINE_CHARS_MAX = 300
JSON_LINES_TYPE = "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """A message as the page shows it: one line, and what opens."""

    shown: ShownMessage
    line: str
    tree: json_tree.Node | None
    key_tree: json_tree.Node | None
    place: str
    state: str


@instance_page(Scope.TOPICS_READ)
@require_http_methods(["GET", "HEAD"])
def topic_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """A topic opens with its messages; for who may not read them, with its partitions."""
    if not access.permits(request.actor, Scope.MESSAGES_READ):  # type: ignore[attr-defined]
        return partitions_of(request, instance, name)
    topic = selectors.topic_detail(instance, name)
    form = _form(request, topic)
    context: dict[str, Any] = {"form": form, "query": _query(request), "rows": (), "page": None}
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
            context |= _page_context(instance, topic, form, page)
    return render_topic(request, instance, topic, "messages", context, status=status)


@instance_page(Scope.MESSAGES_READ)
@require_GET
def messages_file(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """The messages of a page as JSON lines, each as the API answers it."""
    topic = selectors.topic_detail(instance, name)
    form = _form(request, topic)
    if not form.is_valid():
        raise Invalid(_("The page that this file is of cannot be read: open it first."))
    page = _read(request, instance, topic, form)
    lines = [json.dumps(MessageOut(shown).data, ensure_ascii=False) + "\n" for shown in page.messages]
    response = HttpResponse("".join(lines), content_type=JSON_LINES_TYPE)
    response["Content-Disposition"] = f'attachment; filename="{name}.jsonl"'
    return response


@instance_page(Scope.MESSAGES_WRITE)
@require_http_methods(["GET", "POST"])
def send_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """One message, typed by hand."""
    topic = selectors.topic_detail(instance, name)
    form = SendForm(request.POST or None, partitions=topic.partition_count)
    if form.is_valid():
        try:
            (result,) = services.send_messages(
                acting=request.actor,  # type: ignore[attr-defined]
                instance=instance, topic=name, messages=[form.message],
            )  # fmt: skip
        except DomainError as error:
            add_errors(form, error, {"/messages/0/partition": "partition"})
        else:
            place = f"{name}/{result.partition}@{result.offset}"
            messages.success(request, _("The message is stored as %(place)s.") % {"place": place})
            return redirect("page-topic", instance.pk, name)
    return render_topic(request, instance, topic, "send", {"form": form}, status=422 if form.is_bound else 200)


def _form(request: HttpRequest, topic: TopicView) -> ReadForm:
    """A topic with more partitions than a page reads opens with its first."""
    given = request.GET.copy()
    if topic.partition_count > limits.PAGE_PARTITIONS_MAX and not given.get("partition"):
        given["partition"] = "0"
    return ReadForm(given, partitions=topic.partition_count)


def _read(request: HttpRequest, instance: Instance, topic: TopicView, form: ReadForm) -> MessagePage:
    values = form.cleaned_data
    wanted = services.ReadRequest(
        start=parse(form.start_words),
        start_words=form.start_words,
        partition=values["partition"],
        contains=values["q"],
        token=values["page_token"],
        decode=values["show"] or content.AUTO,
    )
    return services.read_messages(acting=request.actor, instance=instance, topic=topic.name, wanted=wanted)  # type: ignore[attr-defined]


def _page_context(instance: Instance, topic: TopicView, form: ReadForm, page: MessagePage) -> dict[str, Any]:
    """Rows of what began with the newest are the newest first, whichever way the page was read."""
    values = form.cleaned_data
    newest_first = (values["start"] or NEWEST) == NEWEST
    shown = list(page.messages)
    if newest_first == (page.direction == NEWER):
        shown.reverse()
    is_first = not values["page_token"]
    at_newest = (page.direction == NEWER and page.is_end) or (newest_first and is_first)
    at_oldest = page.direction != NEWER and page.is_end
    return {
        "page": page,
        "rows": [_row(topic.name, message) for message in shown],
        "is_first": is_first,
        "newest_first": newest_first,
        "words": values["q"],
        "older": None if at_oldest else page.older_token,
        "newer": None if at_newest else page.newer_token,
        "goes_on": page.next_token,
        "has_held_any": any(page.reached.values()),
        "kcat": _kcat(instance, topic.name, form),
        "curl": _curl(instance, topic.name, form),
    }


def _row(topic: str, shown: ShownMessage) -> MessageRow:
    record = shown.record
    return MessageRow(
        shown=shown,
        line=_one_line(shown.value),
        tree=_tree(shown.value),
        key_tree=_tree(shown.key),
        place=f"{topic}/{record.partition}@{record.offset}",
        state="" if record.transaction is None else record.transaction.state or "unknown",
    )


def _one_line(value: Content) -> str:
    return " ".join((value.data or "")[:LINE_CHARS_MAX].split())


def _tree(value: Content) -> json_tree.Node | None:
    return json_tree.tree(value.data or "") if value.format == content.JSON else None


def _query(request: HttpRequest) -> str:
    """The page's own parameters without its token, for links to other pages of the same list."""
    kept = {name: value for name, value in request.GET.items() if name != "page_token" and value}
    return urlencode(kept)


def _kcat(instance: Instance, topic: str, form: ReadForm) -> str:
    """A command that reads the same place without the console. kcat filters nothing."""
    route = instance.routes.order_by("name").first()
    security = client_security(route, Login(PLACEHOLDER_USER, PLACEHOLDER_PASSWORD), public_url("/api/v1/ca.pem"))
    values = form.cleaned_data
    kind = values["start"] or NEWEST
    place = {NEWEST: f"-{limits.PAGE_MESSAGES_DEFAULT}", OFFSET: str(values["offset"])}.get(kind, "beginning")
    if values["time"] is not None and kind == "time":
        place = f"s@{int(values['time'].timestamp() * 1000)}"
    partition = "" if values["partition"] is None else f" -p {values['partition']}"
    servers = route.bootstrap_servers if route is not None else instance.bootstrap_servers
    return (
        f"kcat -C -b {servers}{security.lines('kcat').settings} -t {topic}{partition} -o {place} -e "
        f"-f '%T %p@%o %k %s\\n'"
    )


def _curl(instance: Instance, topic: str, form: ReadForm) -> str:
    values = form.cleaned_data
    query = {"start": form.start_words, "partition": values["partition"], "contains": values["q"] or None}
    given = urlencode({name: value for name, value in query.items() if value is not None})
    url = public_url(f"{API_ROOT}/instances/{instance.pk}/topics/{topic}/messages?{given}")
    return f'curl -H "Authorization: Bearer $TOKEN" {shlex.quote(url)}'

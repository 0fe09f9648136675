"""Tabs of a topic: its producers and its consumers."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy, pgettext_lazy
from django.views.decorators.http import require_GET

from instances import selectors
from instances.clients.listing import CONTAINS_CHARS_MAX
from instances.clients.topic_clients import CONSUME, CONSUMER_SORTS, DEFAULT_SORT, PRODUCE, SORTS, topic_client_page
from instances.models import Instance
from instances.views.columns import SortableColumn, column_link
from instances.views.common import instance_page
from instances.views.topics import render_topic
from tenants import access
from tenants.choices import Scope
from tenants.errors import Unavailable
from tenants.limits import PAGE_SIZE_DEFAULT, PAGE_TOKEN_CHARS_MAX
from tenants.views.base import wording

COLUMNS = (
    SortableColumn("client_id", gettext_lazy("Client"), hidden_on_small_screens=False, is_text=True),
    SortableColumn("user", gettext_lazy("User"), is_text=True),
    SortableColumn("address", gettext_lazy("Address"), is_text=True),
    SortableColumn("rate", gettext_lazy("Rate"), hidden_on_small_screens=False),
    SortableColumn("bytes", gettext_lazy("Since start")),
    SortableColumn("last_seen", pgettext_lazy("traffic", "Last seen"), hidden_on_small_screens=False),
)
GROUP_COLUMNS = (
    SortableColumn("group", gettext_lazy("Group"), is_text=True),
    SortableColumn("lag", gettext_lazy("Lag"), hidden_on_small_screens=False),
)


class TopicClientForm(forms.Form):
    """Filter, order and page of the list, from the query of its URL."""

    q = forms.CharField(required=False, max_length=CONTAINS_CHARS_MAX)
    sort = forms.CharField(required=False, max_length=PAGE_TOKEN_CHARS_MAX)
    page_token = forms.CharField(required=False, max_length=PAGE_TOKEN_CHARS_MAX)


@instance_page(Scope.CLIENTS_READ)
@require_GET
def producers_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the clients that produce to the topic, last seen first."""
    return _clients_page(request, instance, name, PRODUCE)


@instance_page(Scope.CLIENTS_READ)
@require_GET
def consumers_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the clients that consume from the topic, with their groups and lag."""
    return _clients_page(request, instance, name, CONSUME)


def _clients_page(request: HttpRequest, instance: Instance, name: str, direction: str) -> HttpResponse:
    topic = selectors.topic_detail(instance, name)
    with_groups = direction == CONSUME and access.permits(request.actor, Scope.GROUPS_READ)  # type: ignore[attr-defined]
    form = TopicClientForm(request.GET)
    values = form.cleaned_data if form.is_valid() else {}
    search_text, page_token = values.get("q", ""), values.get("page_token", "")
    sort = values.get("sort") or DEFAULT_SORT
    if sort not in (CONSUMER_SORTS if with_groups else SORTS):
        sort, page_token = DEFAULT_SORT, ""
    page, error_text = None, ""
    try:
        page = topic_client_page(
            instance, name, direction, with_groups=with_groups, contains=search_text, sort=sort, page_token=page_token,
            page_size=PAGE_SIZE_DEFAULT,
        )  # fmt: skip
    except Unavailable as error:
        error_text = wording(error)
    columns = (*COLUMNS, *GROUP_COLUMNS) if with_groups else COLUMNS
    context = {
        "page": page, "words": search_text, "sort": sort, "trouble": error_text, "with_groups": with_groups,
        "columns": [column_link(column, search_text, sort) for column in columns],
    }  # fmt: skip
    tab = "consumers" if direction == CONSUME else "producers"
    if request.headers.get("HX-Request"):
        return render_topic(request, instance, topic, tab, context, template="topic_client_rows")
    return render_topic(request, instance, topic, tab, context, template="topic_clients")

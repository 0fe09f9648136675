"""Pages of topics: list, create, partitions, traffic, address lists, clone and delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from instances import interfaces, selectors, services
from instances.copying import pace
from instances.forms import AllowListForm, CloneForm, PartitionsForm, TopicForm
from instances.models import TOPIC_CHARS_MAX, Instance
from instances.selectors import TopicView
from instances.topics.allow_lists import AllowLists
from instances.topics.forms import TopicListForm
from instances.topics.listing import topic_page
from instances.topics.presence import TopicNotReady, describe_topic
from instances.views.columns import TOPIC_COLUMNS, column_link
from instances.views.common import instance_page, render_instance
from instances.views.deleted_topics import deleted_topics_with_bytes
from instances.views.last_viewed_topic import remember_topic
from tenants import access
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError, NotFound
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.base import add_errors, wording
from tenants.wording import localized

MS_PER_HOUR = 3_600_000
UNLIMITED = "-1"


@instance_page(Scope.TOPICS_READ)
@require_GET
def topics_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows one page of topics; filter, order and page are in the URL. Filtering reloads the rows only."""
    form = TopicListForm(request.GET)
    search_text, sort, page_token = form.list_query
    page = topic_page(instance, contains=search_text, sort=sort, page_token=page_token, page_size=PAGE_SIZE_DEFAULT)
    context = {
        "page": page, "words": search_text, "sort": sort,
        "columns": [column_link(column, search_text, sort) for column in TOPIC_COLUMNS],
        "biggest": max((topic.row.size_bytes or 0 for topic in page.items), default=0),
        "worst": max((topic.row.lag or 0 for topic in page.items), default=0),
        "deleted": deleted_topics_with_bytes(instance),
        "copies": list(services.topic_copies(instance)),
        "refused": [{"name": topic.name, "reason": localized(topic.reason)} for topic in page.table.refused],
    }  # fmt: skip
    template = "instances/topic_rows.html" if request.headers.get("HX-Request") else "instances/topics.html"
    return render_instance(request, template, instance, context, section="topics", crumbs=[(_("Topics"), None)])


@instance_page(Scope.TOPICS_WRITE)
@require_http_methods(["GET", "POST"])
def create_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows the form of a new topic; a POST creates it, as a Kafka client does by CreateTopics."""
    initial = {
        "partitions": instance.settings.get("default_partitions", 1),
        "replication_factor": instance.default_replication_factor or 1,
    }
    form = TopicForm(request.POST or None, initial=initial, brokers=len(instance.endpoints))
    if form.is_valid():
        hours = form.cleaned_data["retention_hours"]
        config = {} if hours is None else {"retention.ms": str(int(hours * MS_PER_HOUR)) if hours else UNLIMITED}
        name = form.cleaned_data["name"]
        try:
            services.create_topic(
                acting=request.actor,  # type: ignore[attr-defined]
                instance=instance, name=name, partitions=form.cleaned_data["partitions"],
                replication_factor=form.cleaned_data["replication_factor"], config=config,
            )  # fmt: skip
        except DomainError as error:
            add_errors(form, error, {"/config/retention.ms": "retention_hours", "/config": "retention_hours"})
        else:
            messages.success(request, _("Topic %(topic)s created.") % {"topic": name})
            return redirect("page-topic", instance.pk, name)
    crumbs = [(_("Topics"), reverse("page-topics", args=[instance.pk])), (_("Create"), None)]
    return render_instance(
        request, "instances/topic_create.html", instance, {"form": form},
        section="topics", crumbs=crumbs, status=422 if form.is_bound else 200,
    )  # fmt: skip


def render_topic(
    request: HttpRequest,
    instance: Instance,
    topic: TopicView,
    tab: str,
    context: dict[str, Any],
    *,
    status: int = 200,
    template: str = "",
) -> HttpResponse:
    """Renders one tab of a topic's page. Its template has the name of the tab, unless `template` is given."""
    remember_topic(request, instance, topic.name)
    crumbs = [(_("Topics"), reverse("page-topics", args=[instance.pk])), (topic.name, None)]
    values = {"topic": topic, "tab": tab, **context}
    path = f"instances/{template or f'topic_{tab}'}.html"
    return render_instance(request, path, instance, values, section="topics", crumbs=crumbs, status=status)


@instance_page(Scope.USAGE_READ)
@require_GET
def traffic_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the chart of the bytes that clients produced to the topic and consumed from it."""
    return render_topic(request, instance, selectors.topic_detail(instance, name), "traffic", {})


@instance_page(Scope.TOPICS_READ)
@require_GET
def waiting_part(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Reloads the page of a topic that is being created or restored, as soon as brokers show it or it is gone."""
    try:
        describe_topic(instance, name)
    except TopicNotReady:
        return HttpResponse(status=204)
    except NotFound:
        pass
    return HttpResponse(headers={"HX-Refresh": "true"})


@instance_page(Scope.TOPICS_READ)
@require_http_methods(["GET", "POST"])
def partitions_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the partitions of a topic and their balance; a POST adds partitions."""
    return partitions_tab(request, instance, name)


def partitions_tab(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Renders the tab of partitions, also for members whose first tab it is, and handles its form."""
    topic = selectors.topic_detail(instance, name)
    form = PartitionsForm(request.POST or None, initial={"partitions": topic.partition_count})
    if form.is_valid():
        try:
            services.update_topic(
                acting=request.actor, instance=instance, name=name, partitions=form.cleaned_data["partitions"]  # type: ignore[attr-defined]
            )  # fmt: skip
        except DomainError as error:
            add_errors(form, error)
        else:
            messages.success(
                request, _("%(topic)s has %(n)d partitions.") % {"topic": name, "n": form.cleaned_data["partitions"]}
            )
            return redirect("page-topic-partitions", instance.pk, name)
    sizes = interfaces.observation.implementation.topic_sizes(instance.pk, name)
    partition_reports, unresponsive = sizes.partitions.get(name, {}), {broker.broker_id for broker in sizes.silent}
    rows = [(partition, partition_reports.get(partition.index)) for partition in topic.partitions]
    biggest = max((summary["size_bytes"] for _partition, summary in rows if summary), default=0)
    # Reports of brokers are up to a second old: they may lack a new partition, though its leader answers.
    partition_rows = [
        (partition, summary, _messages(summary), partition.leader >= 0 and partition.leader not in unresponsive)
        for partition, summary in rows
    ]
    context = {"form": form, "rows": partition_rows, "biggest": biggest}
    return render_topic(request, instance, topic, "partitions", context, status=422 if form.is_bound else 200)


def _messages(summary: Mapping[str, int] | None) -> int | None:
    """Returns the number of offsets between log start and high watermark. It is an upper bound of the number of
    messages: transactions and compaction leave gaps.
    """
    return None if summary is None else summary["high_watermark"] - summary["log_start_offset"]


@instance_page(Scope.TOPICS_READ)
@require_http_methods(["GET", "POST"])
def access_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the addresses from which a topic may be used; a POST changes them."""
    topic = selectors.topic_detail(instance, name)
    initial = {name: "\n".join(getattr(topic, f"{name}_ips")) for name in AllowLists._fields}
    form = AllowListForm(request.POST or None, initial=initial)
    if form.is_valid():
        try:
            services.set_allow_list(
                acting=request.actor,  # type: ignore[attr-defined]
                instance=instance, topic=name,
                lists=AllowLists(*(form.cleaned_data[field].split() for field in AllowLists._fields)),
            )  # fmt: skip
        except DomainError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("The address lists of %(topic)s are saved.") % {"topic": name})
            return redirect("page-topic-access", instance.pk, name)
    return render_topic(request, instance, topic, "access", {"form": form}, status=422 if form.is_bound else 200)


@instance_page(Scope.TOPICS_WRITE)
@require_http_methods(["GET", "POST"])
def clone_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows the form of a clone of the topic; a POST creates the clone, with a copy of the messages if requested."""
    topic = selectors.topic_detail(instance, name)
    may_copy = all(access.permits(request.actor, scope) for scope in services.COPY_SCOPES)  # type: ignore[attr-defined]
    form = CloneForm(request.POST or None, initial={"name": f"{name}.copy"[:TOPIC_CHARS_MAX]})
    if form.is_valid():
        clone_name, with_records = form.cleaned_data["name"], form.cleaned_data["records"]
        clone = services.copy_topic if with_records else services.clone_topic
        try:
            clone(acting=request.actor, instance=instance, topic=name, name=clone_name)  # type: ignore[attr-defined]
        except DomainError as error:
            add_errors(form, error)
        else:
            if with_records:
                messages.success(
                    request, _("%(topic)s is being copied to %(name)s.") % {"topic": name, "name": clone_name}
                )
                return redirect(reverse("page-topics", args=[instance.pk]) + "#copies")
            messages.success(request, _("Topic %(topic)s created.") % {"topic": clone_name})
            return redirect("page-topic-config", instance.pk, clone_name)
    context = {
        "form": form,
        "own": services.own_settings(topic.config or ()),
        "may_copy": may_copy,
        "pace_bps": pace.bytes_per_s(instance.bandwidth_mb_s),
        "least_s": None if topic.size_bytes is None else pace.duration_s(topic.size_bytes, instance.bandwidth_mb_s),
    }
    return render_topic(request, instance, topic, "clone", context, status=422 if form.errors else 200)


@instance_page(Scope.TOPICS_WRITE)
@require_http_methods(["GET", "POST"])
def delete_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Deletes a topic after its name was typed, because clients are cut off. It can be restored, unless it is deleted
    for good.
    """
    topic = selectors.topic_detail(instance, name)
    if request.method == "POST" and request.POST.get("typed") == name:
        for_good = "for_good" in request.POST
        try:
            services.delete_topic(acting=request.actor, instance=instance, name=name, for_good=for_good)  # type: ignore[attr-defined]
        except DomainError as error:
            messages.error(request, wording(error))
        else:
            text = _("Topic %(topic)s deleted.") if for_good else _("Topic %(topic)s deleted. It can be restored.")
            messages.success(request, text % {"topic": name})
            return redirect("page-topics", instance.pk)
    return render_topic(request, instance, topic, "delete", {"days": services.restore_period().days})


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def sample_topic(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Creates the topic of the snippets with the instance's defaults: the button on a page without topics."""
    access.require(request.actor, Scope.TOPICS_WRITE)  # type: ignore[attr-defined]
    try:
        services.create_topic(acting=request.actor, instance=instance, name="orders")  # type: ignore[attr-defined]
        messages.success(request, _("Topic %(topic)s created.") % {"topic": "orders"})
    except Conflict as error:  # a second click, or a client created it: the topic exists, as wanted
        messages.info(request, wording(error))
    return redirect(reverse("page-instance", args=[instance.pk]) + "#connect")

"""Page that deletes messages of a topic: a form, the table of messages that would be deleted, and the confirmation."""

from __future__ import annotations

import json

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from instances import selectors, services
from instances.models import Instance
from instances.services import Purge
from instances.topics.forms import ConfirmedOffsetsForm, PurgeForm
from instances.topics.purging import PartitionPurge, PurgeTarget
from instances.views.common import instance_page
from instances.views.topics import render_topic
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.formatting import count
from tenants.views.base import add_errors, wording

PARTITIONS_SHOWN_MAX = 100


@instance_page(Scope.TOPICS_WRITE)
@require_http_methods(["GET", "POST"])
def purge_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows which messages would be deleted. The POST that confirms it deletes up to the offsets that were shown."""
    acting = request.actor  # type: ignore[attr-defined]
    if request.method == "POST" and request.POST.get("act") == "apply":
        return _apply(request, instance, name)
    form = PurgeForm(request.POST or None)
    purge: Purge | None = None
    error_message = ""
    topic = selectors.topic_detail(instance, name)
    if form.is_valid():
        try:
            purge = services.plan_purge(acting=acting, instance=instance, topic=name, target=form.target)
        except DomainError as error:
            error_message = _error_text(form, error)
    context = {
        "form": form, "purge": purge, "note": error_message,
        "lines": [] if purge is None else _largest_first(purge)[:PARTITIONS_SHOWN_MAX],
        "offsets": "" if purge is None else json.dumps(purge.offsets),
    }  # fmt: skip
    return render_topic(request, instance, topic, "purge", context, status=422 if form.errors or error_message else 200)


def _largest_first(purge: Purge) -> list[PartitionPurge]:
    return sorted(purge.purged, key=lambda partition: -partition.messages)


def _error_text(form: PurgeForm, error: DomainError) -> str:
    """Returns the error as text above the form; empty if it is added to fields of the form."""
    if error.http_status != 400:
        return wording(error)
    partition = form.cleaned_data.get("partition")
    add_errors(form, error, {f"/before/{partition}": "partition" if error.code != "offset_out_of_range" else "offset"})
    return ""


def _apply(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    confirmed = ConfirmedOffsetsForm(request.POST)
    if not confirmed.is_valid() or request.POST.get("typed") != name:
        return redirect("page-topic-purge", instance.pk, name)
    try:
        result = services.purge_topic(
            acting=request.actor, instance=instance, topic=name,  # type: ignore[attr-defined]
            target=PurgeTarget(offsets=confirmed.cleaned_data["offsets"]),
        )  # fmt: skip
    except DomainError as error:
        if error.http_status in (401, 404):
            raise
        messages.error(request, wording(error))
        return redirect("page-topic-purge", instance.pk, name)
    _report_result(request, result)
    return redirect("page-topic-partitions", instance.pk, name)


def _report_result(request: HttpRequest, result: Purge) -> None:
    n = result.messages
    text = ngettext(
        "%(n)s message of %(topic)s is deleted.", "%(n)s messages of %(topic)s are deleted.", n
    ) % {"n": count(n), "topic": result.topic}  # fmt: skip
    if not result.errors:
        messages.success(request, text)
        return
    reason = wording(next(iter(result.errors.values())))
    refused_text = ngettext("%(n)s partition was not purged: %(why)s", "%(n)s partitions were not purged: %(why)s",
                    len(result.errors)) % {"n": len(result.errors), "why": reason}  # fmt: skip
    messages.warning(request, f"{text} {refused_text}")

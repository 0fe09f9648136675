"""Action on several topics that were selected in the list: shown, confirmed once, and applied to each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from instances import services
from instances.models import Instance
from instances.topics.forms import SelectedTopicsForm
from instances.topics.purging import PurgeTarget
from instances.topics.table import TopicRow, topic_table
from instances.views.common import instance_page, render_instance
from instances.views.selected_config import selected_config_page
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.formatting import count
from tenants.views.base import wording

REFUSALS_SHOWN_MAX = 5
PURGE, DELETE, CONFIG = "purge", "delete", "config"


@dataclass(frozen=True, slots=True)
class SelectedTopic:
    """A topic with the messages and bytes that the action deletes (None: unknown), or the reason why it is left out."""

    name: str
    message_count: int | None
    size_bytes: int | None
    refusal: str = ""


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def selected_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows topics and amounts, and does the action when the instance's name was typed."""
    form = SelectedTopicsForm(request.POST)
    if not form.is_valid():
        error_texts = [str(error) for errors in form.errors.values() for error in errors]
        messages.error(request, error_texts[0] if request.POST.getlist("name") else _("Select topics first."))
        return redirect("page-topics", instance.pk)
    act, names = form.cleaned_data["act"], form.cleaned_data["name"]
    if act == CONFIG:
        return selected_config_page(request, instance, names)
    if request.POST.get("typed") == instance.name:
        return _apply(request, instance, act, names)
    rows = {row.name: row for row in topic_table(instance).rows}
    topics = [_selected(request, instance, act, name, rows.get(name)) for name in names]
    accepting = [topic for topic in topics if not topic.refusal]
    context = {
        "act": act, "topics": topics, "taking": accepting,
        "message_count": _sum([topic.message_count for topic in accepting]),
        "size_bytes": _sum([topic.size_bytes for topic in accepting]),
    }  # fmt: skip
    crumbs = [(_("Topics"), reverse("page-topics", args=[instance.pk])), (_("Selected topics"), None)]
    template = "instances/topics_selected.html"
    return render_instance(request, template, instance, context, section="topics", crumbs=crumbs)


def _selected(request: HttpRequest, instance: Instance, act: str, name: str, row: TopicRow | None) -> SelectedTopic:
    if row is None:
        return SelectedTopic(name, None, None, _("It is not there any more."))
    if act == DELETE:
        return SelectedTopic(name, row.message_count, row.size_bytes)
    try:
        purge = services.plan_purge(
            acting=request.actor, instance=instance, topic=name, target=PurgeTarget()  # type: ignore[attr-defined]
        )  # fmt: skip
    except DomainError as error:
        return SelectedTopic(name, None, None, wording(error))
    return SelectedTopic(name, purge.messages, row.size_bytes)


def _apply(request: HttpRequest, instance: Instance, act: str, names: Sequence[str]) -> HttpResponse:
    """Does the action on each topic with an audit row of its own; a refusal does not stop the others."""
    apply = _purge if act == PURGE else _delete
    refusals: list[str] = []
    changed = 0
    for name in names:
        try:
            apply(request, instance, name)
            changed += 1
        except DomainError as error:
            refusals.append(f"{name}: {wording(error)}")
    if changed:
        text_of: Callable[[int], str] = _purged_text if act == PURGE else _deleted_text
        messages.success(request, text_of(changed))
    for refusal in refusals[:REFUSALS_SHOWN_MAX]:
        messages.error(request, refusal)
    if len(refusals) > REFUSALS_SHOWN_MAX:
        n = len(refusals) - REFUSALS_SHOWN_MAX
        messages.error(request, ngettext("%(n)s more was refused.", "%(n)s more were refused.", n) % {"n": n})
    return redirect("page-topics", instance.pk)


def _purge(request: HttpRequest, instance: Instance, name: str) -> None:
    purge = services.purge_topic(
        acting=request.actor, instance=instance, topic=name, target=PurgeTarget()  # type: ignore[attr-defined]
    )  # fmt: skip
    if purge.errors:
        raise next(iter(purge.errors.values()))


def _delete(request: HttpRequest, instance: Instance, name: str) -> None:
    services.delete_topic(acting=request.actor, instance=instance, name=name)  # type: ignore[attr-defined]


def _purged_text(n: int) -> str:
    return ngettext(
        "The messages of %(n)s topic are deleted.", "The messages of %(n)s topics are deleted.", n
    ) % {"n": count(n)}  # fmt: skip


def _deleted_text(n: int) -> str:
    return ngettext("%(n)s topic is deleted.", "%(n)s topics are deleted.", n) % {"n": count(n)}


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None

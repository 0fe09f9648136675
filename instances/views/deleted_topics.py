"""Deleted topics on the page of topics: their list, and the actions that restore or purge one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from instances import interfaces, services
from instances.models import DeletedTopic, Instance
from instances.views.common import instance_page
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.asking import Question, ask_first
from tenants.views.base import wording


def deleted_topics_with_bytes(instance: Instance) -> list[tuple[DeletedTopic, int | None]]:
    """Returns the deleted topics with the bytes of all their replicas, None if brokers do not report them."""
    rows = list(services.deleted_topics(instance))
    if not rows:
        return []
    sizes = interfaces.observation.implementation.topic_sizes(instance.pk).hidden
    return [(row, sizes.get(row.topic)) for row in rows]


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def restore(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows a deleted topic to clients again."""
    try:
        services.restore_topic(acting=request.actor, instance=instance, name=name)  # type: ignore[attr-defined]
        messages.success(request, _("Topic %(topic)s is restored. Clients see it within a second.") % {"topic": name})
    except DomainError as error:
        if error.http_status == 401:
            raise
        messages.error(request, wording(error))
    return redirect("page-topics", instance.pk)


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def delete_for_good(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Purges a deleted topic, after a question."""
    back = reverse("page-topics", args=[instance.pk])
    question = Question(
        title=_("Delete %(topic)s for good?") % {"topic": name},
        consequence=_("Its messages, its settings and the offsets of its groups go. Nothing brings them back."),
        action_label=_("Delete for good"),
        back=back,
    )
    crumbs = [(instance.name, reverse("page-instance", args=[instance.pk])), (_("Topics"), back)]
    question_page = ask_first(request, question, section="topics", crumbs=crumbs, context={"instance": instance})
    if question_page is not None:
        return question_page
    try:
        services.purge_deleted_topic(acting=request.actor, instance=instance, name=name)  # type: ignore[attr-defined]
        messages.success(request, _("Topic %(topic)s is deleted for good.") % {"topic": name})
    except DomainError as error:
        if error.http_status == 401:
            raise
        messages.error(request, wording(error))
    return redirect("page-topics", instance.pk)

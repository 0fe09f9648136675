"""Decorator and rendering of the pages of one instance: permission, lock, breadcrumb and side navigation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from instances import access, selectors
from instances.lifecycle.conditions import faults_of
from instances.lifecycle.phases import CHANGEABLE, REACHABLE
from instances.models import Instance
from instances.topics.presence import TopicDeleted, TopicNotReady
from tenants.choices import Scope
from tenants.views.base import Crumb, console_page, render_page

InstanceView = Callable[..., HttpResponse]
# Refresh period of an instance's pages while it has a fault.
REFRESH_WITH_FAULTS_MS = 2_000


def instance_page(scope: str = Scope.INSTANCES_READ, *, locked: bool = False) -> Callable[[InstanceView], InstanceView]:
    """Returns a decorator for the view of a page about one instance, which gets the `Instance`. It raises `NotFound`
    for an instance of another tenant.

    With `locked` a POST runs in one transaction with the instance's row locked, which services of instances require.
    """

    def decorate(view: InstanceView) -> InstanceView:
        @console_page(scope)
        @wraps(view)
        def wrapped_view(request: HttpRequest, instance_id: str, **kwargs: Any) -> HttpResponse:
            acting = request.actor  # type: ignore[attr-defined]
            if locked and request.method == "POST":
                with transaction.atomic():
                    return view(request, access.instance(acting, instance_id, lock=True), **kwargs)
            instance = selectors.instance_detail(acting, instance_id)
            try:
                return view(request, instance, **kwargs)
            except (TopicNotReady, TopicDeleted) as error:
                if request.headers.get("HX-Request"):
                    raise
                return _absent_topic(request, instance, error)

        return wrapped_view

    return decorate


def _absent_topic(request: HttpRequest, instance: Instance, error: TopicNotReady | TopicDeleted) -> HttpResponse:
    """Returns the page of a topic that brokers do not show yet, or that was deleted. The view has changed nothing."""
    if isinstance(error, TopicNotReady):
        name, context, status = error.topic.name, {"waiting": error.topic, "posted": request.method == "POST"}, 200
    else:
        name, context, status = error.row.topic, {"deleted": error.row}, error.http_status
    crumbs = [(_("Topics"), reverse("page-topics", args=[instance.pk])), (name, None)]
    values = {"name": name, **context}
    return render_instance(
        request, "instances/topic_absent.html", instance, values, section="topics", crumbs=crumbs, status=status
    )


def refresh_soon(response: HttpResponse) -> None:
    """Shortens the refresh period of a live part."""
    response.headers["Live-Period"] = str(REFRESH_WITH_FAULTS_MS)


def render_instance(
    request: HttpRequest,
    template: str,
    instance: Instance,
    context: dict[str, Any] | None = None,
    *,
    section: str,
    crumbs: Sequence[Crumb] = (),
    status: int = 200,
) -> HttpResponse:
    """Renders a page of an instance, with the instance's sections first in the side navigation."""
    instance_url = None if section == "overview" else reverse("page-instance", args=[instance.pk])
    trail: list[Crumb] = [(_("Instances"), reverse("page-instances")), (instance.name, instance_url), *crumbs]
    values = {
        "instance": instance,
        "is_reachable": instance.current_phase in REACHABLE,
        "is_changeable": instance.current_phase in CHANGEABLE,
        **(context or {}),
    }
    response = render_page(request, template, values, section=section, crumbs=trail, status=status)
    if values["is_reachable"] and faults_of(instance.conditions):
        refresh_soon(response)
    return response

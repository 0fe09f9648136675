"""What the pages of one instance share: the admin client, the breadcrumb, the side navigation, and a lock for
changes.
"""

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
from tenants.choices import Scope
from tenants.views.base import Crumb, console_page, render_page

InstanceView = Callable[..., HttpResponse]
# While something is wrong with an instance, its pages are asked for so often.
PERIOD_WHILE_UNWELL_MS = 2_000


def instance_page(scope: str = Scope.INSTANCES_READ, *, locked: bool = False) -> Callable[[InstanceView], InstanceView]:
    """A page about one instance: the view gets the `Instance`, another tenant's is not found.

    With `locked` a POST runs in one transaction that holds the instance's lock, as the services of instances want it.
    """

    def decorate(view: InstanceView) -> InstanceView:
        @console_page(scope)
        @wraps(view)
        def guarded(request: HttpRequest, instance_id: str, **kwargs: Any) -> HttpResponse:
            acting = request.actor  # type: ignore[attr-defined]
            if locked and request.method == "POST":
                with transaction.atomic():
                    return view(request, access.instance(acting, instance_id, lock=True), **kwargs)
            return view(request, selectors.instance_detail(acting, instance_id), **kwargs)

        return guarded

    return decorate


def ask_soon(response: HttpResponse) -> None:
    """Tells a part that keeps itself fresh to ask again soon, whatever its own period is."""
    response.headers["Live-Period"] = str(PERIOD_WHILE_UNWELL_MS)


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
    """A page inside an instance: its sections stand first in the side navigation."""
    own_page = None if section == "overview" else reverse("page-instance", args=[instance.pk])
    trail: list[Crumb] = [(_("Instances"), reverse("page-instances")), (instance.name, own_page), *crumbs]
    values = {
        "instance": instance,
        "is_reachable": instance.current_phase in REACHABLE,
        "is_changeable": instance.current_phase in CHANGEABLE,
        **(context or {}),
    }
    response = render_page(request, template, values, section=section, crumbs=trail, status=status)
    if values["is_reachable"] and faults_of(instance.conditions):
        ask_soon(response)
    return response

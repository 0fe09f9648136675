"""Pages of an instance's routes: list, create, change, certificates, delete."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from instances import access, selectors, services
from instances.choices import OperationState, OperationType
from instances.models import Instance, Operation, Route
from instances.routes.forms import RouteForm
from instances.routes.kinds import ROUTES_MAX, WITH_SASL, WITH_TLS
from instances.views.common import instance_page, render_instance
from instances.views.connecting import CA_PATH, connect_context
from instances.views.operation_steps import elapsed_s, steps_of
from instances.views.route_certificates import certificate_context, change_certificates
from tenants.access import require
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import Crumb, add_errors, wording

# Fields of the form by the pointers of services.
FIELDS = {"/confirm_plaintext": "security"}


@instance_page(locked=True)
@require_http_methods(["GET", "POST"])
def routes_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows all routes in the order of their creation; a POST creates one."""
    form = RouteForm(request.POST or None)
    if form.is_valid():
        acting = request.actor  # type: ignore[attr-defined]
        try:
            require(acting, Scope.INSTANCES_WRITE)
            route, _operation = services.create_route(acting=acting, instance=instance, route=form.arguments())
        except DomainError as error:
            add_errors(form, error, FIELDS)
        else:
            messages.success(request, _("Route %(route)s is being opened.") % {"route": route.name})
            return redirect("page-route", instance.pk, route.name)
    routes = instance.routes_in_order
    context = {
        "form": form,
        "routes": [_route_context(route) for route in routes],
        "routes_max": ROUTES_MAX,
        "is_full": len(routes) >= ROUTES_MAX,
        "has_tls": any(route.security in WITH_TLS for route in routes),
        "ca_path": CA_PATH,
        **_operation_context(instance),
    }
    return render_instance(
        request, "instances/routes.html", instance, context,
        section="routes", crumbs=[(_("Routes"), None)], status=422 if form.is_bound else 200,
    )  # fmt: skip


@instance_page(locked=True)
@require_http_methods(["GET", "POST"])
@sensitive_post_parameters("private_key_pem")
def route_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows one route: its state, connection snippets, the form that changes it, and its certificates."""
    route = access.route(instance, name)
    part = request.POST.get("part", "change") if request.method == "POST" else ""
    form = RouteForm(request.POST if part == "change" else None, route=route)
    if part:
        require(request.actor, Scope.INSTANCES_WRITE)  # type: ignore[attr-defined]
    if part == "change" and form.is_valid() and _update_route(request, instance, route, form):
        return redirect("page-route", instance.pk, route.name)
    certificates = {} if part in ("", "change") else change_certificates(request, instance, route, part)
    if certificates is None:
        return redirect("page-route", instance.pk, route.name)
    route.refresh_from_db()  # without changes that were refused
    context = {
        "route": _route_context(route),
        "form": form,
        "ca_path": CA_PATH,
        **_operation_context(instance),
        **certificate_context(route, certificates),
        **connect_context(request, instance, route, route),
    }
    return render_instance(
        request, "instances/route.html", instance, context,
        section="routes", crumbs=_crumbs(instance, route), status=422 if part else 200,
    )  # fmt: skip


def _update_route(request: HttpRequest, instance: Instance, route: Route, form: RouteForm) -> bool:
    """Changes the route; returns False if the change is refused, with the error in the form."""
    try:
        operation = services.update_route(
            acting=request.actor, instance=instance, route=route, changes=form.arguments()  # type: ignore[attr-defined]
        )  # fmt: skip
    except DomainError as error:
        add_errors(form, error, FIELDS)
        return False
    if operation is None:
        messages.success(request, _("That was in force already."))
    else:
        messages.success(request, _("Saved. It is in force within a second."))
    return True


@instance_page(Scope.INSTANCES_WRITE, locked=True)
@require_http_methods(["GET", "POST"])
def delete_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Deletes a route after its name was typed, because connections are closed; the page says what clients notice."""
    route = access.route(instance, name)
    others = [other for other in instance.routes_in_order if other.pk != route.pk]
    if request.method == "POST" and request.POST.get("typed") == route.name:
        try:
            services.delete_route(acting=request.actor, instance=instance, route=route)  # type: ignore[attr-defined]
        except DomainError as error:
            messages.error(request, wording(error))
            return redirect("page-route", instance.pk, name)
        messages.success(request, _("Route %(route)s is being closed.") % {"route": name})
        return redirect("page-routes", instance.pk)
    context = {
        "route": _route_context(route),
        "others": others,
        "next_first": others[0] if others and others[0].pk > route.pk else None,
        "is_last_for_users": route.security in WITH_SASL and not any(other.security in WITH_SASL for other in others),
    }
    crumbs = _crumbs(instance, route, (_("Delete"), None))
    return render_instance(request, "instances/route_delete.html", instance, context, section="routes", crumbs=crumbs)


def _crumbs(instance: Instance, route: Route, *more: Crumb) -> list[Crumb]:
    route_page_url = reverse("page-route", args=[instance.pk, route.name]) if more else None
    return [(_("Routes"), reverse("page-routes", args=[instance.pk])), (route.name, route_page_url), *more]


def _route_context(route: Route) -> dict[str, Any]:
    """Returns a route with values for its page. `is_open`: every client that reaches it has all rights of ANONYMOUS."""
    addresses = [address for _broker, address in sorted(route.endpoints.items(), key=lambda item: int(item[0]))]
    return {
        "row": route,
        "name": route.name,
        "addresses": addresses,
        "ports": sorted({address.rpartition(":")[2] for address in addresses}),
        "has_sasl": route.security in WITH_SASL,
        "has_tls": route.security in WITH_TLS,
        "is_open": route.security == "plaintext",
    }


def _operation_context(instance: Instance) -> dict[str, Any]:
    """Returns the last change of routes with its steps, while it is running or if it failed."""
    operation: Operation | None = (
        selectors.operation_list(instance.tenant, instance_id=instance.pk).filter(type=OperationType.ROUTES).first()
    )
    if operation is None or operation.state == OperationState.SUCCEEDED:
        return {"operation": None}
    return {"operation": operation, "steps": steps_of(operation), "elapsed_s": elapsed_s(operation)}

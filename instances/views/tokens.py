"""Page of an instance's OAuth configuration (OAUTHBEARER): set, replace and remove."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from instances import services
from instances.models import Instance
from instances.users.token_forms import TokensForm
from instances.views.common import instance_page, render_instance
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import add_errors, wording


@instance_page(Scope.USERS_READ, locked=True)
@require_http_methods(["GET", "POST"])
def tokens_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows the configuration with the keys in force; a POST replaces or removes it."""
    part = request.POST.get("part", "set") if request.method == "POST" else ""
    target = {"acting": request.actor, "instance": instance}  # type: ignore[attr-defined]
    row = _configuration_in_force(instance)
    form = TokensForm(request.POST if part == "set" else None, initial=_initial(row))
    if part:
        access.require(request.actor, Scope.USERS_WRITE)  # type: ignore[attr-defined]
    try:
        if part == "remove":
            services.remove_oauth(**target)
            messages.success(request, _("Tokens are not taken any more."))
            return redirect("page-oauth", instance.pk)
        if part and form.is_valid():
            services.configure_oauth(**target, requested=form.arguments())
            messages.success(request, _("Saved. It is in force within a second."))
            return redirect("page-oauth", instance.pk)
    except DomainError as error:
        if part == "remove":
            messages.error(request, wording(error))
            return redirect("page-oauth", instance.pk)
        add_errors(form, error)
    crumbs = [(_("Users"), reverse("page-users", args=[instance.pk])), (_("Tokens"), None)]
    return render_instance(
        request, "instances/oauth.html", instance, {"form": form, "configured": row},
        section="users", crumbs=crumbs, status=422 if part else 200,
    )  # fmt: skip


def _configuration_in_force(instance: Instance) -> Any:
    """Returns the row, or None if tokens are not accepted."""
    row = getattr(instance, "oauth", None)
    return None if row is None or row.is_removed else row


def _initial(row: Any) -> dict[str, Any] | None:
    """Returns the form's initial values, without pinned keys: they have to be pasted again with any change."""
    if row is None:
        return None
    names = ("issuer", "audience", "jwks_url", "principal_claim")
    return {name: getattr(row, name) for name in names} | {"clock_skew_seconds": row.clock_skew_s}

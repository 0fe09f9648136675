"""Common parts of console pages: actor, permissions, language and time zone, and the frame around the page.

A view is `@console_page(scope)` over a function that parses, calls a service or selector, and renders. Refusals of
services become a page (404, 403 with the permitted roles, 503) or, in a form, errors beside the field.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode, urlsplit, urlunsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.defaults import page_not_found

from tenants import access, interfaces, selectors
from tenants.actors import Actor
from tenants.api import rates
from tenants.choices import Scope
from tenants.errors import ConfirmationNeeded, DomainError, NotFound, SecondFactorNeeded
from tenants.requests import actor_of
from tenants.second_factor import gate
from tenants.sessions import SIGN_IN_PLACE
from tenants.views.suspension import suspension_of
from tenants.wording import localized

logger = logging.getLogger(__name__)

Crumb = tuple[str, str | None]
Arguments = ParamSpec("Arguments")
INSTANCE_PAGE = "page-instance"
INSTANCE_PATH = re.compile(r"/instances/(ins-[a-z0-9]{1,20})/")
OUTSIDE_CONSOLE = ("/api/", "/operator/", "/accounts/", "/static/")
BACK_FIELD = "question_back"  # field of the form that answers a question (`tenants.views.asking`)
TENANT_FIELD = "in_tenant"  # field of forms whose URL contains nothing of the tenant: `{% in_tenant %}`


def frame_context(request: HttpRequest, acting: Actor | None) -> dict[str, Any]:
    """Returns the context of the frame around a page."""
    context: dict[str, Any] = {"actor": acting}
    if acting is None or acting.user is None:
        return context
    name = acting.user.name or acting.user.email.partition("@")[0]
    words = [word for word in name.replace(".", " ").replace("_", " ").split() if word]
    context["initials"] = "".join(word[0] for word in words[:2]).upper() or "?"
    context["role_label"] = acting.role.label if acting.role else ""
    context["can"] = access.scopes_of(acting)
    context["memberships"] = selectors.memberships(acting.user)
    if acting.is_confined:
        context["memberships"] = [acting.member] if acting.member else []
        return context
    if acting.user.has_sign_in_notices:
        context["sign_in_notices"] = selectors.sign_in_notices(acting.user, request.session.get(SIGN_IN_PLACE))
    return context


def render_page(
    request: HttpRequest,
    template: str,
    context: dict[str, Any] | None = None,
    *,
    section: str = "",
    crumbs: Sequence[Crumb] = (),
    status: int = 200,
) -> HttpResponse:
    """Renders a page inside the frame. `crumbs` follow the tenant; the last one is text."""
    acting: Actor | None = getattr(request, "actor", None)
    values = {**frame_context(request, acting), "section": section, "crumbs": crumbs, **(context or {})}
    return render(request, template, values, status=status)


def console_page(
    scope: str | None = None,
    *,
    needs_tenant: bool = True,
    needs_factor: bool = True,
) -> Callable[
    [Callable[Concatenate[HttpRequest, Arguments], HttpResponse]],
    Callable[Concatenate[HttpRequest, Arguments], HttpResponse],
]:
    """Decorates a page for signed-in members; `scope` is the required permission, None for pages about the user.

    Without `needs_tenant` it also serves people without a tenant; without `needs_factor` also those who still have to
    set up a required second factor. A POST is charged to the person as a write over the API is.
    """

    def decorate(
        view: Callable[Concatenate[HttpRequest, Arguments], HttpResponse],
    ) -> Callable[Concatenate[HttpRequest, Arguments], HttpResponse]:
        @wraps(view)
        def page(request: HttpRequest, *args: Arguments.args, **kwargs: Arguments.kwargs) -> HttpResponse:
            if not request.user.is_authenticated:
                return signed_out_part(request) or redirect_to_login(_return_url(request))
            acting = actor_of(request)
            request.actor = acting  # type: ignore[attr-defined]
            with translation.override(request.user.language), timezone.override(_zone_of(request)):
                request.LANGUAGE_CODE = translation.get_language()  # type: ignore[attr-defined]
                try:
                    if request.method == "POST":
                        rates.charge_write(acting)
                    request.actor = acting = _in_submitted_tenant(request, acting)  # type: ignore[attr-defined]
                    if needs_factor:
                        gate.require(request, acting)
                    if needs_tenant:
                        access.tenant_of(acting)
                    if scope is not None:
                        access.require(acting, scope)
                    response = view(request, *args, **kwargs)
                except ConfirmationNeeded:
                    response = redirect_to_reauthentication(request)
                except SecondFactorNeeded:
                    response = _redirect_whole_page(request, reverse("page-security"))
                except DomainError as error:
                    response = error_page(request, error, scope)
                    if error.retry_after_s is not None:
                        response.headers["Retry-After"] = str(error.retry_after_s)
                response.headers.setdefault("Cache-Control", "private, no-cache")
                response.headers["Content-Language"] = translation.get_language() or ""
                return response

        return page

    return decorate


def _in_submitted_tenant(request: HttpRequest, acting: Actor) -> Actor:
    """Returns the actor in the tenant of the submitted form, and makes that tenant the session's.

    Another tab may have chosen another tenant since the form was opened. Raises `NotFound` for a former member.
    """
    submitted_tenant_id = request.POST.get(TENANT_FIELD) if request.method == "POST" else None
    if not submitted_tenant_id or (acting.tenant is not None and acting.tenant.pk == submitted_tenant_id):
        return acting
    request.session["tenant_id"] = access.tenant(acting, submitted_tenant_id).pk
    return actor_of(request)


def redirect_to_reauthentication(request: HttpRequest) -> HttpResponse:
    """Redirects to reauthentication and back. Nothing was changed."""
    if request.method == "POST":
        messages.info(request, _("Confirm that it is you, then send it again. Nothing was changed so far."))
    return _redirect_whole_page(
        request, reverse("account_reauthenticate") + "?" + urlencode({"next": _return_url(request)})
    )


def _redirect_whole_page(request: HttpRequest, url: str) -> HttpResponse:
    """Redirects; for a fragment of a page it redirects the whole page."""
    if request.headers.get("HX-Request"):
        return HttpResponse(status=403, headers={"HX-Redirect": url})
    return redirect(url)


def signed_out_part(request: HttpRequest) -> HttpResponse | None:
    """Answers a fragment of a page whose session has ended: the whole page reloads, which leads to the login and back.

    A redirect would put the login into the fragment. Returns None for a whole page.
    """
    return HttpResponse(status=401, headers={"HX-Refresh": "true"}) if request.headers.get("HX-Request") else None


def _return_url(request: HttpRequest) -> str:
    """Returns the URL to which a login leads back: the requested page, or the page of the submitted form.

    A question has no URL of its own, and names the page before it.
    """
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    referrer = request.POST.get(BACK_FIELD) or request.headers.get("Referer", "")
    is_own_host = url_has_allowed_host_and_scheme(referrer, {request.get_host()}, require_https=request.is_secure())
    parts = urlsplit(referrer)
    return urlunsplit(("", "", parts.path, parts.query, "")) if is_own_host and parts.path else "/"


def _zone_of(request: HttpRequest) -> ZoneInfo:
    try:
        return ZoneInfo(request.user.time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def error_page(request: HttpRequest, error: DomainError, scope: str | None = None) -> HttpResponse:
    """Renders the page of a refusal: what happened, what is safe, and what to do next."""
    if error.http_status >= 500:
        logger.warning("console page unavailable", extra={"code": error.code, "detail": error.detail})
    required_scope = getattr(error, "scope", "") or scope
    roles = (
        [role.label for role, granted in access.ROLE_SCOPES.items() if required_scope in granted]
        if required_scope
        else []
    )
    instance = _instance_of(request)
    suspended = suspension_of(request, error)
    context = {
        "error": error,
        "words": wording(error),
        "roles": roles if error.http_status == 403 and not suspended else (),
        "request_id": getattr(request, "request_id", ""),
        "suspended": suspended,
        "instance": instance,
        "sso_address": getattr(error, "address", ""),
    }
    if request.headers.get("HX-Request"):
        return render(request, "console/parts/failed_part.html", context, status=error.http_status)
    default_title = _("Could not load") if error.http_status >= 500 else _("Not possible")
    title = {404: _("Not found"), 403: _("Not allowed")}.get(error.http_status, default_title)
    if suspended:
        title = _("Suspended")
    crumbs: list[Crumb] = [(title, None)]
    if instance is not None:
        instance_url = reverse(INSTANCE_PAGE, args=[instance.pk])
        is_that_page = request.path == instance_url
        context["back"] = "" if is_that_page else instance_url
        crumbs = [(_("Instances"), reverse("page-instances")), (instance.name, instance_url), *crumbs]
    return render_page(request, "console/error.html", context, crumbs=crumbs, status=error.http_status)


def missing_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Renders the page for an unknown URL: inside the console for members, with a separate page for others."""
    if not request.user.is_authenticated or request.path.startswith(OUTSIDE_CONSOLE):
        return page_not_found(request, exception)

    @console_page(needs_tenant=False, needs_factor=False)
    def missing(request: HttpRequest) -> HttpResponse:
        raise NotFound

    return missing(request)


def outside_sso(request: HttpRequest) -> HttpResponse:
    """Answers a page of the whole account in a session of single sign-on."""

    @console_page(needs_tenant=False, needs_factor=False)
    def outside(request: HttpRequest) -> HttpResponse:
        access.require_whole_account(request.actor)  # type: ignore[attr-defined]
        raise NotFound

    return outside(request)


def _instance_of(request: HttpRequest) -> interfaces.PageInstance | None:
    """Returns the instance in the URL for its menu; None for other pages, or if it is not the tenant's."""
    acting: Actor | None = getattr(request, "actor", None)
    match = INSTANCE_PATH.match(request.path)
    if match is None or acting is None or acting.tenant is None or not access.permits(acting, Scope.INSTANCES_READ):
        return None
    try:
        return interfaces.page_instance.implementation(acting, match[1])
    except DomainError:
        return None


def wording(error: DomainError) -> str:
    """Returns an error in the reader's language if it can be translated (`tenants.wording`).

    A missing permission is named by its label.
    """
    scope = getattr(error, "scope", "")
    if scope in Scope.values:
        return _("This needs the permission “%(what)s”.") % {"what": Scope(scope).label}
    return localized(error.detail or error.title)


def add_errors(form: Form, error: DomainError, fields: dict[str, str] | None = None) -> None:
    """Adds a service's errors to the fields they point to; others are shown above the form.

    `fields` maps JSON pointers to form fields with different names.
    """
    if error.http_status in (401, 404) or error.http_status >= 500 or isinstance(error, ConfirmationNeeded):
        raise error
    is_shown = False
    for field_error in error.errors:
        pointer = field_error.pointer or f"/{field_error.parameter or ''}"
        name = (fields or {}).get(pointer, pointer.strip("/").split("/")[0])
        form.add_error(name if name in form.fields else None, localized(field_error.detail))
        is_shown = True
    if not is_shown:
        form.add_error(None, wording(error))

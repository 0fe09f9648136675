"""Preferences of a person: language, theme, time zone, chosen tenant, and names."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from tenants import access, services
from tenants.choices import Language, Scope, Theme
from tenants.errors import DomainError
from tenants.forms import PreferencesForm, TenantForm
from tenants.limits import UNVERIFIED_BANDWIDTH_MB_S_MAX, UNVERIFIED_STORAGE_GB_MAX
from tenants.templatetags.console import THEME_COOKIE
from tenants.views.base import add_errors, console_page, render_page

COOKIE_SECONDS = 365 * 86_400


@require_POST
def set_preferences(request: HttpRequest) -> HttpResponse:
    """Handles the switches in the header; without a user they only set cookies."""
    language, theme = request.POST.get("language"), request.POST.get("theme")
    language = language if language in Language.values else None
    theme = theme if theme in Theme.values else None
    if request.user.is_authenticated:
        services.set_preferences(user=request.user, language=language, theme=theme)
    next_url = request.POST.get("next", "/")
    is_own_host = url_has_allowed_host_and_scheme(next_url, allowed_hosts={request.get_host()})
    is_script = "HX-Request" in request.headers
    response = HttpResponse(status=204) if is_script else redirect(next_url if is_own_host else "/")
    if language:
        response.set_cookie(settings.LANGUAGE_COOKIE_NAME, language, max_age=COOKIE_SECONDS, samesite="Lax")
    if theme:
        response.set_cookie(THEME_COOKIE, theme, max_age=COOKIE_SECONDS, samesite="Lax", httponly=True)
    return response


@console_page(needs_factor=False)  # if a second factor is needed depends on the chosen tenant
@require_POST
def choose_tenant(request: HttpRequest) -> HttpResponse:
    """Switches to another tenant of the person; a foreign one is not found."""
    tenant = access.tenant(request.actor, request.POST.get("tenant", ""))  # type: ignore[attr-defined]
    request.session["tenant_id"] = tenant.pk
    return redirect("/")


@console_page()
def settings_page(request: HttpRequest) -> HttpResponse:
    """Shows and saves the own preferences and the tenant's name, in separate forms."""
    acting = request.actor  # type: ignore[attr-defined]
    user, tenant = request.user, access.tenant_of(acting)
    initial = {"name": user.name, "language": user.language, "time_zone": user.time_zone, "theme": user.theme}
    submitted_part = request.POST.get("part") if request.method == "POST" else None
    user_form = PreferencesForm(request.POST if submitted_part == "mine" else None, initial=initial)
    tenant_form = TenantForm(request.POST if submitted_part == "tenant" else None, initial={"name": tenant.name})
    new_tenant_form = TenantForm(request.POST if submitted_part == "found" else None, auto_id="found-%s")
    try:
        if user_form.is_bound and user_form.is_valid():
            services.set_preferences(user=user, **user_form.cleaned_data)
            messages.success(request, _("Saved."))
            response = redirect("page-settings")
            response.set_cookie(
                settings.LANGUAGE_COOKIE_NAME,
                user_form.cleaned_data["language"],
                max_age=COOKIE_SECONDS,
                samesite="Lax",
            )
            return response
        if tenant_form.is_bound and tenant_form.is_valid():
            access.require(acting, Scope.TENANT_WRITE)
            services.rename_tenant(acting=acting, tenant=tenant, name=tenant_form.cleaned_data["name"])
            messages.success(request, _("Saved."))
            return redirect("page-settings")
        if new_tenant_form.is_bound and new_tenant_form.is_valid():
            name = new_tenant_form.cleaned_data["name"]
            new_tenant = services.create_own_tenant(user=user, name=name, acting=acting).tenant
            request.session["tenant_id"] = new_tenant.pk
            messages.success(
                request, _("%(tenant)s is founded. You are its owner, and work in it now.") % {"tenant": new_tenant}
            )
            return redirect("/")
    except DomainError as error:
        add_errors(next(form for form in (user_form, tenant_form, new_tenant_form) if form.is_bound), error)
    context = {
        "mine": user_form, "ours": tenant_form, "another": new_tenant_form, "tenant": tenant,
        "mb_s_max": UNVERIFIED_BANDWIDTH_MB_S_MAX, "gb_max": UNVERIFIED_STORAGE_GB_MAX,
        "is_confined": acting.is_confined,
        "may_verify": not acting.is_confined and settings.MAIL_IS_CONFIGURED and user.email_verified_at is None,
    }  # fmt: skip
    return render_page(
        request, "console/settings.html", context,
        section="settings", crumbs=[(_("Settings"), None)], status=422 if submitted_part else 200,
    )  # fmt: skip

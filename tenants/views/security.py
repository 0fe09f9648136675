"""Security page of an account: second factor, sessions, and the tenant's requirements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from allauth.mfa.models import Authenticator
from allauth.mfa.totp.views import ActivateTOTPView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from tenants import access, selectors, services, sessions
from tenants.browsers import browser_of, system_of
from tenants.choices import Role, Scope
from tenants.errors import ConfirmationNeeded, DomainError
from tenants.ids import is_id
from tenants.limits import SIGN_IN_PLACES_PER_USER_MAX
from tenants.models import SIGN_IN_PLACE_ID_START, Session, User
from tenants.requests import acting_person
from tenants.second_factor import codes, gate
from tenants.second_factor.forms import ActivateAppForm
from tenants.views.base import console_page, render_page, wording


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSession:
    """Session of an account, as its owner sees it; `is_current` is the session that shows the page."""

    public_id: str
    browser: str
    user_agent: str
    address: str
    created_at: datetime
    last_seen_at: datetime
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Second factors of an account."""

    app: Authenticator | None
    passkeys: tuple[Authenticator, ...]
    recovery_codes_left: int | None  # None if no recovery codes were created

    @property
    def is_on(self) -> bool:
        return self.app is not None or bool(self.passkeys)


def redirect_to_security_page(request: HttpRequest) -> HttpResponse:
    """Redirects from allauth's overview pages, which the security page replaces."""
    return redirect("page-security")


class ActivateAppView(ActivateTOTPView):
    """View of allauth that activates an authenticator app; the first code cannot be used a second time."""

    @transaction.atomic
    def form_valid(self, form: ActivateAppForm) -> HttpResponse:
        response: HttpResponse = super().form_valid(form)
        assert form.step is not None, "the form is valid"
        codes.mark_used(self.request.user, form.step)
        return response


activate_app = ActivateAppView.as_view()


@console_page(needs_tenant=False, needs_factor=False)
def security_page(request: HttpRequest) -> HttpResponse:
    """Shows second factors, sessions and the tenant's requirement on one page; each change has a page of its own."""
    acting = request.actor  # type: ignore[attr-defined]
    current_key = request.session.session_key
    may_require_factor = acting.role is Role.OWNER and access.permits(acting, Scope.TENANT_WRITE)
    context = {
        "factors": factors_of(request.user),
        "sessions": [_shown_session(row, current_key) for row in selectors.sessions_of(request.user, timezone.now())],
        "must_enrol": gate.lacks_factor_required_of_operators(request) or gate.lacks_factor_required_by_tenant(acting),
        "is_required_of_operators": gate.lacks_factor_required_of_operators(request),
        "tenant": acting.tenant,
        "may_require_factor": may_require_factor,
        "without_factor": selectors.members_without_factor(access.tenant_of(acting)) if may_require_factor else [],
        "idle_hours": round(settings.SESSION_IDLE_S / 3_600),
        "days_max": round(settings.SESSION_DAYS_MAX),
    }
    return render_page(request, "console/security.html", context, section="security", crumbs=[(_("Security"), None)])


@console_page(needs_tenant=False, needs_factor=False)
@require_POST
def end_session(request: HttpRequest, public_id: str) -> HttpResponse:
    """Ends one of the user's own sessions; sessions of others are not found."""
    acting = acting_person(request, request.user)
    row = services.end_session(acting=acting, user=request.user, public_id=public_id)
    if row.session_key == request.session.session_key:
        logout(request)
        return redirect("account_login")
    messages.success(request, _("The session has ended."))
    return redirect("page-security")


@console_page(needs_tenant=False, needs_factor=False)
@require_POST
def end_sessions(request: HttpRequest) -> HttpResponse:
    """Signs out of all other sessions, or of this one as well."""
    acting = acting_person(request, request.user)
    includes_current_session = request.POST.get("this_too") == "on"
    ended_count = services.end_sessions_of(
        acting=acting, user=request.user, except_key=None if includes_current_session else request.session.session_key
    )
    if includes_current_session:
        logout(request)
        return redirect("account_login")
    sentence = ngettext("%(n)s session has ended.", "%(n)s sessions have ended.", ended_count)
    messages.success(request, sentence % {"n": ended_count})
    return redirect("page-security")


@console_page(needs_tenant=False, needs_factor=False)
@require_POST
def acknowledge_notices(request: HttpRequest) -> HttpResponse:
    """Acknowledges the notices of new sign-ins that the page showed."""
    places = request.POST.getlist("place")[:SIGN_IN_PLACES_PER_USER_MAX]
    services.acknowledge_sign_in_notices(
        user=request.user,
        place_ids=[place for place in places if is_id(place, SIGN_IN_PLACE_ID_START)],
        except_place=request.session.get(sessions.SIGN_IN_PLACE),
    )
    return redirect("page-security")


@console_page(Scope.TENANT_READ)
@require_POST
def set_members_factor_required(request: HttpRequest) -> HttpResponse:
    """Sets whether members need a second factor."""
    acting = request.actor  # type: ignore[attr-defined]
    is_required = request.POST.get("wanted") == "on"
    try:
        services.set_second_factor_required(acting=acting, tenant=access.tenant_of(acting), required=is_required)
        messages.success(request, _("Saved."))
    except ConfirmationNeeded:
        raise
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-security")


def factors_of(user: User) -> Factors:
    """Returns the second factors of the person."""
    rows = list(selectors.authenticators_of(user))
    recovery_rows = [row for row in rows if row.type == Authenticator.Type.RECOVERY_CODES]
    return Factors(
        app=next((row for row in rows if row.type == Authenticator.Type.TOTP), None),
        passkeys=tuple(row for row in rows if row.type == Authenticator.Type.WEBAUTHN),
        recovery_codes_left=len(recovery_rows[0].wrap().get_unused_codes()) if recovery_rows else None,
    )


def _shown_session(row: Session, current_key: str | None) -> ShownSession:
    browser, system = browser_of(row.user_agent), system_of(row.user_agent)
    label = _("%(browser)s on %(system)s") % {"browser": browser, "system": system} if browser and system else browser
    return ShownSession(
        public_id=row.public_id, browser=label or system or _("Unknown browser"), user_agent=row.user_agent,
        address=row.ip or "", created_at=row.created_at, last_seen_at=row.last_seen_at,
        is_current=row.session_key == current_key,
    )  # fmt: skip

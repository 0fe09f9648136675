"""Entry pages: sign-up, home, invitation links. Login and logout are allauth's views with our templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from allauth.core import ratelimit
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from tenants import counting, selectors, services
from tenants.choices import InvitationState, Language
from tenants.errors import DomainError, NotFound
from tenants.forms import AccountForm, SignUpForm
from tenants.limits import SIGN_UP_MAILS_PER_ADDRESS_AND_HOUR_MAX
from tenants.models import Invitation, Member, User, UserManager
from tenants.requests import actor_of
from tenants.views.base import add_errors, console_page, render_page

FIELDS = {"/email": "email", "/password": "password", "/name": "tenant_name"}
BACKEND = "django.contrib.auth.backends.ModelBackend"


def home(request: HttpRequest) -> HttpResponse:
    """Redirects to the list of instances, or to the login."""
    if not request.user.is_authenticated:
        return redirect("account_login")
    if request.user.is_staff and actor_of(request).tenant is None:
        return redirect("/operator/")
    try:
        return redirect("page-instances")
    except NoReverseMatch:
        return redirect("page-settings")


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    """Creates an account with its first tenant and signs in; if mail is configured, sends a mail instead."""
    if request.user.is_authenticated:
        return redirect("/")
    if not settings.SIGN_UP_IS_OPEN:
        return render_page(request, "console/sign_up_closed.html", status=403)

    def create(values: dict[str, Any], language: str) -> Member | None:
        if settings.MAIL_IS_CONFIGURED:
            services.request_sign_up(
                email=values["email"], password=values["password"], tenant_name=values["tenant_name"], language=language
            )
            return None
        return services.sign_up(
            email=values["email"], password=values["password"], tenant_name=values["tenant_name"], language=language
        )

    return _account_page(request, SignUpForm(request.POST or None), create, "console/sign_up.html", {})


def _account_page(
    request: HttpRequest,
    form: AccountForm,
    create: Callable[[dict[str, Any], str], Member | None],
    template: str,
    context: dict[str, Any],
) -> HttpResponse:
    """Shows the form, or creates the account and signs its owner in.

    If `create` returns None, a mail was sent, and the response is the same for every address.
    """
    if request.method == "POST" and not ratelimit.consume(request, action="signup"):
        return render_page(request, "console/too_many.html", status=429)
    if form.is_valid():
        language = get_language() or ""
        try:
            member = None
            if not settings.MAIL_IS_CONFIGURED or count_mail(request, form.cleaned_data["email"]):
                member = create(form.cleaned_data, language if language in Language.values else Language.ENGLISH)
        except DomainError as error:
            if error.code == "email_taken":
                form.add_error("email", _("There is an account with this address. Log in instead."))
            elif isinstance(error, NotFound):
                form.add_error("email", _("There is no open invitation for this address under this link."))
            else:
                add_errors(form, error, FIELDS)
        else:
            if member is None:
                return render_page(request, "console/look_into_mail.html", {"email": form.cleaned_data["email"]})
            _keep_time_zone(member.user, form.cleaned_data["time_zone"])
            login(request, member.user, backend=BACKEND)
            request.session["tenant_id"] = member.tenant_id
            return redirect("/")
    return render_page(request, template, context | {"form": form}, status=422 if form.is_bound else 200)


def count_mail(request: HttpRequest, email: str) -> bool:
    """Counts a mail to this address, and returns False if it has had its mails of the hour. Then nothing is sent, and
    the response is the same.
    """
    key, rate = UserManager.normalize_email(email), f"{SIGN_UP_MAILS_PER_ADDRESS_AND_HOUR_MAX}/h"
    return counting.count(request, "sign_up_mail", rate, key) is not None


def _keep_time_zone(user: User, name: str) -> None:
    try:
        services.set_preferences(user=user, time_zone=name or None)
    except DomainError:
        return  # a browser may name a zone unknown to this system; UTC stays


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def join(request: HttpRequest, secret: str, proof: str = "") -> HttpResponse:
    """Accepts an invitation, with an existing or a new account.

    The secret is only in the link and never stored. `proof` is in the mailed link: its holder can read the mailbox.
    """
    is_proved = bool(proof) and services.is_invitation_proof(secret, proof)
    if proof and not is_proved:
        raise Http404
    invitation = selectors.invitation_of_link(secret)
    state = None if invitation is None else invitation.state_at(timezone.now())
    if invitation is None or state is not InvitationState.OPEN:
        response = _closed(request, invitation, state)
    elif request.user.is_authenticated:
        response = _accept(request, secret, invitation, is_proved)
    else:
        response = _join_with_an_account(request, secret, invitation, is_proved)
    response.headers["Cache-Control"] = "no-store"
    return response


def _closed(request: HttpRequest, invitation: Invitation | None, state: InvitationState | None) -> HttpResponse:
    """Renders the reason why a link is invalid, and what to do next."""
    status = 404 if invitation is None else 410
    return render_page(request, "console/join_closed.html", {"invitation": invitation, "state": state}, status=status)


def _join_with_an_account(request: HttpRequest, secret: str, invitation: Invitation, is_proved: bool) -> HttpResponse:
    def create(values: dict[str, Any], language: str) -> Member | None:
        email, password = values["email"], values["password"]
        if settings.MAIL_IS_CONFIGURED and not is_proved:
            services.request_sign_up_invited(
                email=email, password=password, invitation=invitation, secret=secret, language=language
            )
            return None
        return services.sign_up_invited(
            email=email, password=password, secret=secret, language=language, is_mailbox_verified=is_proved
        )

    here = quote(request.path)
    context = {"log_in_url": f"{reverse('account_login')}?next={here}", "invitation": invitation}
    return _account_page(request, AccountForm(request.POST or None), create, "console/join_account.html", context)


@console_page(needs_tenant=False)
def _accept(request: HttpRequest, secret: str, invitation: Invitation, is_proved: bool) -> HttpResponse:
    acting = request.actor  # type: ignore[attr-defined]
    is_theirs = invitation.email == request.user.email
    is_member = selectors.members(invitation.tenant).filter(user=request.user).exists()
    if request.method == "POST" and is_theirs and not is_member:
        member = services.accept_invitation(acting=acting, user=request.user, secret=secret)
        if is_proved:
            services.verify_mailbox(acting=acting, user=request.user)
        request.session["tenant_id"] = member.tenant_id
        messages.success(request, _("You are a member of %(tenant)s.") % {"tenant": member.tenant.name})
        return redirect("/")
    context = {
        "form_action": request.path, "invitation": invitation, "is_theirs": is_theirs,
        "is_member": is_member,
    }  # fmt: skip
    return render_page(request, "console/join.html", context, status=409 if request.method == "POST" else 200)


def no_page(request: HttpRequest) -> HttpResponse:
    """Replaces the sign-in library's page for changing the e-mail address.

    That page has no audit, and does not ensure that an address belongs to one account, which invitations rely on.
    """
    raise Http404

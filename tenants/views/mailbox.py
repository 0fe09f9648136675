"""Verification of a mailbox: requesting the mail, and the page of its link."""

from __future__ import annotations

from allauth.account.internal.flows.login import perform_login
from allauth.account.models import Login
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from tenants import services
from tenants.errors import RateLimited
from tenants.forms import VerifyForm
from tenants.models import User
from tenants.requests import acting_person
from tenants.sign_in import LoginScope, password_holder
from tenants.views.base import console_page, render_page
from tenants.views.entry import count_mail


@console_page(needs_tenant=False)
@require_POST
def send(request: HttpRequest) -> HttpResponse:
    """Sends the mail to a signed-in person whose address is not verified."""
    if not settings.MAIL_IS_CONFIGURED:
        raise Http404
    if not count_mail(request, request.user.email):
        messages.error(request, _("Enough mails for this hour. Look into your mailbox, or try again later."))
    elif request.user.email_verified_at is None and services.send_verification_mail(request.user):
        messages.success(request, _("A mail is on its way to %(email)s.") % {"email": request.user.email})
    else:
        messages.error(request, _("No mail could be sent. Try again later."))
    return redirect("page-settings")


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def verify(request: HttpRequest, secret: str) -> HttpResponse:
    """Verifies the mailbox of a link.

    It requires the password or a session of the same person: otherwise an attacker who signed up with a foreign address
    could have it verified by a click of its owner.
    """
    user = services.user_of_verification_link(secret) if settings.MAIL_IS_CONFIGURED else None
    if user is None or user.email_verified_at is not None:
        response = render_page(request, "console/verify_closed.html", {"user": user}, status=410 if user else 404)
    else:
        response = _verify(request, user)
    response.headers["Cache-Control"] = "no-store"
    return response


def _verify(request: HttpRequest, user: User) -> HttpResponse:
    is_signed_in = request.user.is_authenticated and request.user.pk == user.pk
    form = VerifyForm(request.POST or None, needs_password=not is_signed_in)
    status = 200
    if request.method == "POST" and form.is_valid():
        try:
            if is_signed_in or _is_password_right(request, user, form.cleaned_data["password"]):
                return _respond_verified(request, user, is_signed_in=is_signed_in)
            form.add_error("password", _("This is not the password of this account."))
        except RateLimited:
            form.add_error(None, _("Too many failed login attempts. Try again later."))
            status = 429
    if form.is_bound and status == 200:
        status = 422
    context = {"form": form, "email": user.email, "is_signed_in": is_signed_in}
    return render_page(request, "console/verify.html", context, status=status)


def _is_password_right(request: HttpRequest, user: User, password: str) -> bool:
    holder = password_holder(
        request, LoginScope.CONSOLE, user.email, password, may_enter=lambda candidate: candidate.pk == user.pk
    )
    return holder is not None


def _respond_verified(request: HttpRequest, user: User, *, is_signed_in: bool) -> HttpResponse:
    services.verify_mailbox(acting=acting_person(request, user), user=user)
    messages.success(request, _("Your e-mail address is verified."))
    # A person with a second factor must give it here as well.
    return redirect("/") if is_signed_in else perform_login(request, Login(user=user, redirect_url="/"))

"""The way in: sign up, home, invitation links. Logging in and out are allauth's views with our templates."""

from __future__ import annotations

from allauth.core import ratelimit
from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from tenants import services
from tenants.actors import actor_of
from tenants.choices import Language
from tenants.errors import DomainError
from tenants.forms import SignUpForm
from tenants.views.base import add_errors, console_page, render_page

FIELDS = {"/email": "email", "/password": "password", "/name": "tenant_name"}
BACKEND = "django.contrib.auth.backends.ModelBackend"


def home(request: HttpRequest) -> HttpResponse:
    """The list of instances, or the way in."""
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
    """An account and its first tenant in one step, signed in at the end."""
    if request.user.is_authenticated:
        return redirect("/")
    if request.method == "POST" and not ratelimit.consume(request, action="signup"):
        return render_page(request, "console/too_many.html", status=429)
    form = SignUpForm(request.POST or None)
    if form.is_valid():
        language = get_language() or ""
        try:
            member = services.sign_up(
                email=form.cleaned_data["email"],
                password=form.cleaned_data["password"],
                tenant_name=form.cleaned_data["tenant_name"],
                language=language if language in Language.values else Language.ENGLISH,
            )
        except DomainError as error:
            if error.code == "email_taken":
                form.add_error("email", _("There is an account with this address. Log in instead."))
            else:
                add_errors(form, error, FIELDS)
        else:
            _keep_time_zone(member.user, form.cleaned_data["time_zone"])
            login(request, member.user, backend=BACKEND)
            return redirect("/")
    status = 422 if form.is_bound else 200
    return render_page(request, "console/sign_up.html", {"form": form}, status=status)


def _keep_time_zone(user: object, name: str) -> None:
    try:
        services.set_preferences(user=user, time_zone=name or None)  # type: ignore[arg-type]
    except DomainError:
        return  # a browser may name a zone that this system does not have; UTC stays


@console_page()
@require_http_methods(["GET", "POST"])
def join(request: HttpRequest, secret: str) -> HttpResponse:
    """Accept an invitation. The secret stands in the link alone and is never written anywhere."""
    if request.method == "POST":
        acting = request.actor  # type: ignore[attr-defined]
        member = services.accept_invitation(acting=acting, user=request.user, secret=secret)
        request.session["tenant_id"] = member.tenant_id
        messages.success(request, _("You are a member of %(tenant)s.") % {"tenant": member.tenant.name})
        return redirect("/")
    response = render_page(request, "console/join.html", {"form_action": reverse("page-join", args=[secret])})
    response.headers["Cache-Control"] = "no-store"
    return response

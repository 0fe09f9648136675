"""Pages of API tokens."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from tenants import access, selectors, services
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError
from tenants.formatting import clock
from tenants.forms import TokenForm
from tenants.views.asking import Question, ask_first
from tenants.views.base import add_errors, console_page, render_page, wording


@console_page(Scope.TOKENS_READ)
def tokens_page(request: HttpRequest) -> HttpResponse:
    """Shows tokens with scopes, last use and expiry; a POST creates one and shows its secret once."""
    acting = request.actor  # type: ignore[attr-defined]
    form = TokenForm(request.POST or None, granted=access.grantable_scopes(acting))
    token = secret = None
    if form.is_bound and form.is_valid():
        days = form.cleaned_data["days"]
        try:
            access.require(acting, Scope.TOKENS_WRITE)
            token, secret = services.create_token(
                acting=acting,
                name=form.cleaned_data["name"],
                scopes=form.cleaned_data["scopes"],
                expires_at=timezone.now() + timedelta(days=int(days)) if days else None,
                once=form.cleaned_data["once"],
            )
        except Conflict as error:
            messages.error(request, wording(error))
            return redirect("page-tokens")
        except DomainError as error:
            add_errors(form, error)
    if secret:
        form = TokenForm(granted=access.grantable_scopes(acting))
    context = {
        "tokens": selectors.tokens(access.tenant_of(acting)),
        "form": form,
        "token": token,
        "secret": secret,
        "now": timezone.now(),
        "may_revoke_all": access.permits(acting, Scope.MEMBERS_WRITE),
    }
    status = 422 if form.is_bound else 200
    response = render_page(
        request, "console/tokens.html", context, section="tokens", crumbs=[(_("API tokens"), None)], status=status
    )
    if secret:
        response.headers["Cache-Control"] = "no-store"
    return response


@console_page(Scope.TOKENS_WRITE)
@require_POST
def revoke_token(request: HttpRequest, token_id: str) -> HttpResponse:
    """Revokes a token, which stops working immediately."""
    acting = request.actor  # type: ignore[attr-defined]
    token = access.token(acting, token_id)
    used = clock(token.last_used_at) if token.last_used_at else _("never")
    question = Question(
        title=_("Revoke token %(token)s?") % {"token": token.name},
        consequence=_(
            "Programs that use it get 401 from the next call on, and it cannot be brought back. Last used: %(used)s."
        )
        % {"used": used},
        action_label=_("Revoke"),
        back=reverse("page-tokens"),
    )
    question_page = ask_first(request, question, section="tokens", crumbs=[(_("API tokens"), question.back)])
    if question_page is not None:
        return question_page
    try:
        services.revoke_token(acting=acting, token=token)
        messages.success(request, _("%(token)s is revoked.") % {"token": token.name})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-tokens")

"""Page on which operators change their password (`/operator/password_change/`): Django's, rate-limited and audited."""

from __future__ import annotations

from allauth.account import signals
from allauth.core import ratelimit
from django.contrib import admin
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from tenants import hashing
from tenants.models import User
from tenants.password_forms import OperatorPasswordChangeForm


class OperatorPasswordChangeView(PasswordChangeView):
    """Change of an operator's own password."""

    form_class = OperatorPasswordChangeForm
    template_name = "operator/password_change.html"

    def get_success_url(self) -> str:
        return reverse("admin:password_change_done")

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        # Each attempt requires the current password, so it could be guessed here.
        if not ratelimit.consume(request, action="change_password"):
            return render(request, "console/too_many.html", status=429)
        with hashing.for_operators():
            return super().post(request, *args, **kwargs)

    def form_valid(self, form: OperatorPasswordChangeForm) -> HttpResponse:  # type: ignore[override]
        response = super().form_valid(form)
        signals.password_changed.send(sender=User, request=self.request, user=form.user)
        return response


def password_change(request: HttpRequest) -> HttpResponse:
    """Replaces the panel's own view; only for people who may open the panel."""
    return admin.site.admin_view(_page)(request)  # type: ignore[no-any-return]


def _page(request: HttpRequest) -> HttpResponse:
    request.current_app = admin.site.name  # type: ignore[attr-defined]
    return OperatorPasswordChangeView.as_view(extra_context=admin.site.each_context(request))(request)

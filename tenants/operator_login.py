"""Sign-in of operators to the panel. Failures are counted separately from the console (`tenants.sign_in`)."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from django import forms
from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from unfold.forms import AuthenticationForm

from tenants import services
from tenants.errors import RateLimited
from tenants.models import User
from tenants.sign_in import LoginScope, password_holder


def _may_enter(user: User) -> bool:
    return user.is_staff and services.may_enter(user)


class OperatorLoginForm(AuthenticationForm):
    """Login form that refuses people who are not operators as if the password were wrong."""

    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name and password:
            try:
                self.user_cache = password_holder(
                    self.request, LoginScope.OPERATOR, name, password, may_enter=_may_enter
                )
            except RateLimited:
                raise forms.ValidationError(_("Too many failed login attempts. Try again later.")) from None
            if self.user_cache is None:
                raise self.get_invalid_login_error()
            self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data


class OperatorLoginView(LoginView):
    """Login page of the panel. After the password the sign-in library asks for the second factor, as in the console."""

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        record_authentication(self.request, user, method="password", email=user.email)
        return perform_login(self.request, Login(user=user, redirect_url=self.get_success_url()))


def operator_login(request: HttpRequest) -> HttpResponseBase:
    """Replaces `AdminSite.login`, which would sign in without the second factor."""
    site: Any = admin.site
    index = reverse("admin:index")
    if request.method == "GET" and site.has_permission(request):
        return redirect(index)
    context = {
        **site.each_context(request), "title": _("Log in"), "subtitle": None, "app_path": request.get_full_path(),
        "username": request.user.get_username(), "next": index,
    }  # fmt: skip
    request.current_app = site.name
    view = OperatorLoginView.as_view(
        extra_context=context, authentication_form=OperatorLoginForm, template_name="admin/login.html", next_page=index
    )
    return view(request)

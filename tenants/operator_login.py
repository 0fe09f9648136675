"""How operators sign in to the panel. What fails here is counted apart from the console (`tenants.sign_in`)."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from unfold.forms import AuthenticationForm

from tenants import services
from tenants.errors import RateLimited
from tenants.models import User
from tenants.sign_in import Entrance, password_holder


def _may_enter(user: User) -> bool:
    return user.is_staff and services.may_enter(user)


class OperatorLoginForm(AuthenticationForm):
    """Whoever is no operator has a wrong password here."""

    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name and password:
            try:
                self.user_cache = password_holder(self.request, Entrance.OPERATOR, name, password, may_enter=_may_enter)
            except RateLimited:
                raise forms.ValidationError(_("Too many failed login attempts. Try again later.")) from None
            if self.user_cache is None:
                raise self.get_invalid_login_error()
            self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data

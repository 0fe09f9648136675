"""How operators sign in to the panel: as often as anybody may try at the console, and no oftener."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from unfold.forms import AuthenticationForm


class OperatorLoginForm(AuthenticationForm):
    """Asks through the sign-in library, which counts what fails by address and by account (`ACCOUNT_RATE_LIMITS`)."""

    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name and password:
            adapter = get_adapter(self.request)
            self.user_cache = adapter.authenticate(self.request, username=name, email=name, password=password)
            if self.user_cache is None:
                raise self.get_invalid_login_error()
            self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data

"""Adapter for the sign-in library: password checks, client addresses and public URLs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from tenants import services, sessions
from tenants.errors import RateLimited
from tenants.mails import public_url
from tenants.models import User
from tenants.password_forms import USER_ID_START
from tenants.requests import client_ip
from tenants.sign_in import LoginScope, password_holder


class AccountAdapter(DefaultAccountAdapter):
    """Makes the library's account pages use our counting of failures, client addresses and public URL."""

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_ip(request) or "unknown"

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        email = credentials.get("email") or credentials.get("username") or ""
        try:
            return password_holder(
                request, LoginScope.CONSOLE, email, credentials.get("password") or "", may_enter=services.may_enter
            )
        except RateLimited:
            raise self.validation_error("too_many_login_attempts") from None

    def reauthenticate(self, user: User, password: str) -> bool:
        holder = self.authenticate(context.request, email=user.email, password=password)
        return holder is not None and holder.pk == user.pk

    def is_reauthentication_required(self, *, app: str, **_: Any) -> bool:
        return not sessions.is_confirmed(context.request)

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """Requires the second factor of users who have one, since the password alone would bypass it."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        factors = [method for method in methods if method["id"] != "reauthenticate"]
        return factors or methods

    def get_reset_password_from_key_url(self, key: str) -> str:
        uid, _hyphen, temporary = key.removeprefix(USER_ID_START).partition("-")
        path = reverse("account_reset_password_from_key", kwargs={"uidb36": uid, "key": temporary})
        return public_url(path)

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        host = urlsplit(settings.PUBLIC_URL).netloc
        site_context = {"current_site": SimpleNamespace(name="Penstock", domain=host)}
        if "signup_url" in context:
            site_context["signup_url"] = public_url(reverse("account_signup"))  # type: ignore[assignment]
        super().send_mail(template_prefix, email, {**context, **site_context})

"""What the sign-in library asks us: whose password this is, where a request comes from, and where links lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from tenants import services
from tenants.errors import RateLimited
from tenants.mails import public_url
from tenants.models import User
from tenants.password_forms import USER_ID_START
from tenants.requests import client_ip
from tenants.sign_in import Entrance, password_holder


class AccountAdapter(DefaultAccountAdapter):
    """The library's pages with our counting, our addresses and our public URL."""

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_ip(request) or "unknown"

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        email = credentials.get("email") or credentials.get("username") or ""
        try:
            return password_holder(
                request, Entrance.CONSOLE, email, credentials.get("password") or "", may_enter=services.may_enter
            )
        except RateLimited:
            raise self.validation_error("too_many_login_attempts") from None

    def get_reset_password_from_key_url(self, key: str) -> str:
        uid, _hyphen, temporary = key.removeprefix(USER_ID_START).partition("-")
        at = reverse("account_reset_password_from_key", kwargs={"uidb36": uid, "key": temporary})
        return public_url(at)

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        host = urlsplit(settings.PUBLIC_URL).netloc
        ours = {"current_site": SimpleNamespace(name="Penstock", domain=host)}
        if "signup_url" in context:
            ours["signup_url"] = public_url(reverse("account_signup"))  # type: ignore[assignment]
        super().send_mail(template_prefix, email, {**context, **ours})

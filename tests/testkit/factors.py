"""Second factors of people in tests."""

from __future__ import annotations

import time
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.test import Client
from django.urls import reverse

from tenants.models import User
from tenants.second_factor.codes import LAST_STEP, STEP_S


def code_at(secret: str, now_s: float) -> str:
    """Returns the code that an authenticator shows at an instant."""
    return str(format_hotp_value(hotp_value(secret, int(now_s) // STEP_S)))


def set_up_app(user: User) -> str:
    """Sets up an authenticator with recovery codes; returns its secret."""
    secret = str(generate_totp_secret())
    TOTP.activate(user, secret)
    RecoveryCodes.activate(user)
    return secret


def current_code(user: User, secret: str) -> str:
    """Returns a code that is valid now, though another one was just used: tests do not wait for the clock."""
    row = Authenticator.objects.get(user=user, type=Authenticator.Type.TOTP)
    if row.data.pop(LAST_STEP, None) is not None:
        row.save()
    return code_at(secret, time.time())


def recovery_codes(user: User) -> list[str]:
    """Returns the unused recovery codes."""
    row = Authenticator.objects.get(user=user, type=Authenticator.Type.RECOVERY_CODES)
    return list(row.wrap().get_unused_codes())


def give_password(client: Client, user: User, password: str) -> Any:
    """Does the first step of signing in at the console."""
    return client.post(reverse("account_login"), {"login": user.email, "password": password})


def give_code(client: Client, code: str) -> Any:
    """Does the second step."""
    return client.post(reverse("mfa_authenticate"), {"code": code})


def is_signed_in(client: Client) -> bool:
    """True if the browser has a signed-in session."""
    return "_auth_user_id" in client.session

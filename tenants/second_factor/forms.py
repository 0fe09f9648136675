"""Forms of the library with our counting: attempts are counted by address, by account and address, and by account, and
are uncounted if they succeed (`tenants.sign_in`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allauth.core import context
from allauth.mfa.base import forms as base_forms
from allauth.mfa.models import Authenticator
from allauth.mfa.totp import forms as totp_forms
from allauth.mfa.webauthn import forms as webauthn_forms
from allauth.mfa.webauthn.internal import auth
from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tenants.errors import RateLimited
from tenants.limits import NAME_CHARS_MAX, PASSKEYS_PER_USER_MAX
from tenants.models import User
from tenants.second_factor import codes
from tenants.services.mailboxes import may_enter
from tenants.sign_in import Attempt, LoginScope, count_address, record_known_address

logger = logging.getLogger(__name__)

CREDENTIAL_CHARS_MAX = 16 * 1024


@contextmanager
def count_attempt(user: User) -> Iterator[None]:
    """Counts an attempt: raises if too many have failed, and uncounts it on success."""
    attempt = Attempt(context.request, LoginScope.CODE, user.email)
    try:
        attempt.begin()
    except RateLimited:
        raise too_many_codes() from None
    yield
    attempt.uncount()
    record_known_address(context.request, LoginScope.CODE, user.email)


def too_many_codes() -> ValidationError:
    message = _("Too many wrong codes. Wait a few minutes, then try again.")
    return ValidationError(message, code="too_many_login_attempts")


def code_field(label: Any) -> forms.CharField:
    """Returns a form field for a code. Recovery codes are digits as well."""
    attrs = {"autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True}
    return forms.CharField(label=label, max_length=codes.CODE_CHARS_MAX, widget=forms.TextInput(attrs=attrs))


class CountedCode(base_forms.BaseAuthenticateForm):
    """Form for a code of the app, or a recovery code, with counting of attempts."""

    code = code_field(gettext_lazy("Code"))

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        with count_attempt(self.user):
            authenticator = codes.use_code(self.user, code, time.time())
            if authenticator is None:
                raise ValidationError(_("This code is wrong, or was used already."), code="incorrect_code")
        authenticator.user = self.user
        self.authenticator = authenticator
        return code


class AuthenticateForm(CountedCode, base_forms.AuthenticateForm):
    """Form at sign-in."""


class ReauthenticateForm(CountedCode, base_forms.ReauthenticateForm):
    """Form at reauthentication."""


class CredentialField(forms.JSONField):
    """Hidden form field with the browser's response for a passkey, in JSON."""

    def __init__(self) -> None:
        super().__init__(widget=forms.HiddenInput)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > CREDENTIAL_CHARS_MAX:
            raise passkey_error()
        try:
            result = super().to_python(value)
        except RecursionError:
            raise passkey_error() from None
        # The library tests for truth: with `0` it would create an invalid passkey.
        if not isinstance(result, dict) or not result:
            raise passkey_error()
        return result

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Returns nothing, so that the submitted value is not shown again."""
        return None

    def prepare_value(self, value: Any) -> str:
        return ""


def passkey_error() -> ValidationError:
    """Returns the uniform error for any failure of a passkey or its browser."""
    return ValidationError(_("This passkey did not work. Nothing was changed; try again."), code="incorrect_code")


@contextmanager
def uniform_passkey_errors() -> Iterator[None]:
    """Converts all errors while parsing the browser's response to `passkey_error`.

    It may be arbitrary, and the parsing libraries (CBOR, signatures, keys) raise many kinds of exceptions.
    """
    try:
        yield
    except ValidationError:
        raise
    except Exception:
        logger.info("a passkey's answer was not understood", exc_info=True)
        raise passkey_error() from None


class CountedPasskey(webauthn_forms.AuthenticateWebAuthnForm):
    """Form for the signature of a passkey. Guessing is infeasible; counting limits the cost of invalid attempts."""

    credential = CredentialField()

    def clean_credential(self) -> Authenticator:
        with count_attempt(self.user), uniform_passkey_errors():
            return super().clean_credential()


class AuthenticatePasskeyForm(CountedPasskey):
    """Form at sign-in."""


class LoginPasskeyForm(webauthn_forms.LoginWebAuthnForm):
    """Form for a sign-in by passkey in place of password and second factor.

    The browser names the account, so attempts are counted by address only: counting by account would allow others to
    lock out its owner.
    """

    credential = CredentialField()

    def clean_credential(self) -> Authenticator:
        try:
            usage = count_address(context.request, LoginScope.CODE)
        except RateLimited:
            raise too_many_codes() from None
        with uniform_passkey_errors():
            response = auth.parse_authentication_response(self.cleaned_data["credential"])
            # The challenge may come from a page that accepts a passkey in addition to a password.
            if not response.response.authenticator_data.is_user_verified():
                raise passkey_error()
            authenticator: Authenticator = super().clean_credential()
        if not authenticator.user.is_active or not may_enter(authenticator.user):
            raise passkey_error()
        usage.rollback()
        return authenticator


class ReauthenticatePasskeyForm(CountedPasskey, webauthn_forms.ReauthenticateWebAuthnForm):
    """Form at reauthentication."""

    reauthenticated = True
    passwordless = False


class ActivateAppForm(totp_forms.ActivateTOTPForm):
    """Form for the first code of an app that has just scanned the QR code."""

    code = code_field(gettext_lazy("The code that the app shows"))

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        with count_attempt(self.user):
            self.step = codes.matching_step(self.secret, codes.normalized(code), time.time())
            if self.step is None:
                raise ValidationError(_("This code is wrong. Is the clock of the device right?"), code="incorrect_code")
        return code


class AddPasskeyForm(webauthn_forms.AddWebAuthnForm):
    """Form that adds a passkey. The device decides if it can replace the password, so the user is not asked."""

    passwordless = None
    credential = CredentialField()
    name = forms.CharField(
        label=gettext_lazy("Name"), required=False, max_length=NAME_CHARS_MAX,
        help_text=gettext_lazy("For yourself, such as the device it is on."),
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        count = Authenticator.objects.filter(user=self.user, type=Authenticator.Type.WEBAUTHN).count()
        if count >= PASSKEYS_PER_USER_MAX:
            raise ValidationError(_("An account has %(n)s passkeys at most.") % {"n": PASSKEYS_PER_USER_MAX})
        with uniform_passkey_errors():
            cleaned: dict[str, Any] = super().clean()
        return cleaned

    def add_error(self, field: str | None, error: Any) -> None:
        """Shows errors of the hidden field above the form."""
        super().add_error(None if field == "credential" else field, error)

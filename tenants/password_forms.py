"""Forms for changing a password, in the console and the operator panel, with the option to revoke API tokens."""

from __future__ import annotations

from typing import Any

from allauth.account import forms as account_forms
from allauth.core import context
from django import forms
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.forms import AdminOwnPasswordChangeForm

from tenants import services
from tenants.models import User
from tenants.requests import acting_person

# The library's URLs accept a user's id without hyphens, so they contain the part after this prefix.
USER_ID_START = "usr-"


class RevokeTokensMixin(forms.Form):
    """Mixin that adds an option to revoke API tokens, in case others know the password."""

    revoke_tokens = forms.BooleanField(label=_("Revoke my API tokens, too"), required=False, initial=True)

    user: Any

    @transaction.atomic
    def save(self, *args: Any, **options: Any) -> Any:
        result = super().save(*args, **options)  # type: ignore[misc]
        if self.cleaned_data.get("revoke_tokens"):
            revoke_tokens_of(context.request, self.user)
        return result


def revoke_tokens_of(request: HttpRequest, user: User) -> None:
    """Revokes all API tokens of the user, with the user as the actor of the audit entries."""
    services.revoke_tokens_of(acting=acting_person(request, user), user=user)


class ChangePasswordForm(RevokeTokensMixin, account_forms.ChangePasswordForm):
    """Form that changes a password and requires the current one."""

    field_order = ("oldpassword", "password1", "password2", "revoke_tokens")


class SetPasswordForm(RevokeTokensMixin, account_forms.SetPasswordForm):
    """Form that sets the first password of an account."""

    field_order = ("password1", "password2", "revoke_tokens")


class ResetPasswordKeyForm(RevokeTokensMixin, account_forms.ResetPasswordKeyForm):
    """Form that resets a password after a mailed link was opened."""

    field_order = ("password1", "password2", "revoke_tokens")


class UserTokenForm(account_forms.UserTokenForm):
    """Form that finds the user of a mailed link."""

    def _get_user(self, uidb36: str) -> User | None:
        return User.objects.filter(pk=f"{USER_ID_START}{uidb36}", is_active=True).first()


class OperatorPasswordChangeForm(RevokeTokensMixin, AdminOwnPasswordChangeForm):
    """Form that changes the password of an operator in the panel."""

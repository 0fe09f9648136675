"""The forms a person changes a password with: the sign-in library's and the operator panel's, each with the choice to
revoke that person's API tokens.
"""

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

# The library's addresses take a user's id without hyphens, so they hold what comes behind the prefix.
USER_ID_START = "usr-"


class TokensToo(forms.Form):
    """Whoever changes a password because somebody else may know it wants that person's tokens dead as well."""

    revoke_tokens = forms.BooleanField(label=_("Revoke my API tokens, too"), required=False, initial=True)

    user: Any

    @transaction.atomic
    def save(self, *args: Any, **options: Any) -> Any:
        result = super().save(*args, **options)  # type: ignore[misc]
        if self.cleaned_data.get("revoke_tokens"):
            revoke_tokens_of(context.request, self.user)
        return result


def revoke_tokens_of(request: HttpRequest, user: User) -> None:
    """As the person would, one after the other."""
    services.revoke_tokens_of(acting=acting_person(request, user), user=user)


class ChangePasswordForm(TokensToo, account_forms.ChangePasswordForm):
    """With the present password."""

    field_order = ("oldpassword", "password1", "password2", "revoke_tokens")


class SetPasswordForm(TokensToo, account_forms.SetPasswordForm):
    """For who has none."""

    field_order = ("password1", "password2", "revoke_tokens")


class ResetPasswordKeyForm(TokensToo, account_forms.ResetPasswordKeyForm):
    """By a link from a mail."""

    field_order = ("password1", "password2", "revoke_tokens")


class UserTokenForm(account_forms.UserTokenForm):
    """Whose password a link from a mail is about."""

    def _get_user(self, uidb36: str) -> User | None:
        return User.objects.filter(pk=f"{USER_ID_START}{uidb36}", is_active=True).first()


class OperatorPasswordChangeForm(TokensToo, AdminOwnPasswordChangeForm):
    """In the operator panel."""

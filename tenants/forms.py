"""The sign-up form: e-mail, password, and the name of the tenant to found."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import SignupForm
from django import forms
from django.utils.translation import gettext_lazy as _

from tenants.errors import DomainError
from tenants.limits import NAME_CHARS_MAX
from tenants.models import UserManager
from tenants.services.people import checked_name


class SignUpForm(SignupForm):
    """allauth's form, and one question more."""

    tenant_name = forms.CharField(
        label=_("Organisation"),
        max_length=NAME_CHARS_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
        help_text=_("Instances and bills belong to it. You can rename it later."),
    )
    field_order = ("email", "password1", "tenant_name")

    def clean_email(self) -> str:
        return UserManager.normalize_email(super().clean_email())

    def clean_tenant_name(self) -> Any:
        try:
            return checked_name(self.cleaned_data["tenant_name"])
        except DomainError as refusal:
            raise forms.ValidationError(_("Use printable characters only.")) from refusal

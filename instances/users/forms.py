"""Forms of users: they read what was typed; services and brokers decide."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.users.limits import USER_NAME_BYTES_MAX
from instances.users.naming import fault_of
from tenants.wording import localized

DAYS = (("", _("Never")), ("30", _("30 days")), ("90", _("90 days")), ("365", _("1 year")))


class UserForm(forms.Form):
    name = forms.CharField(
        label=_("Name"), max_length=USER_NAME_BYTES_MAX,
        help_text=_("What the client signs in as, for example the name of the application."),
    )  # fmt: skip
    superuser = forms.BooleanField(
        label=_("Full access"), required=False,
        help_text=_("Everything in this instance. Without it, what access rules allow."),
    )  # fmt: skip
    days = forms.ChoiceField(label=_("Expires after"), choices=DAYS, required=False)

    def clean_name(self) -> str:
        fault = fault_of(self.cleaned_data["name"])
        if fault is not None:
            raise forms.ValidationError(localized(fault))
        return str(self.cleaned_data["name"])


class ExpiryForm(forms.Form):
    days = forms.ChoiceField(label=_("Expires after"), choices=DAYS, required=False)

    def clean_days(self) -> Any:
        return int(self.cleaned_data["days"]) if self.cleaned_data["days"] else None

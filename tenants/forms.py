"""Forms of the console's frame: they parse input; permissions are checked by services."""

from __future__ import annotations

import secrets
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.forms.boundfield import BoundWidget
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from tenants.choices import Language, Role, Scope, Theme
from tenants.limits import NAME_CHARS_MAX
from tenants.scope_groups import GROUPS, PRESETS, preset_scopes

PASSWORD_CHARS_MAX = 256
TOKEN_DAYS = (("30", _("30 days")), ("90", _("90 days")), ("365", _("1 year")), ("", _("Never")))


class AccountForm(forms.Form):
    """Account of a person, without a tenant."""

    email = forms.EmailField(
        label=_("E-mail"), max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "email", "autofocus": True})
    )
    password = forms.CharField(
        label=_("Password"), max_length=PASSWORD_CHARS_MAX, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_("At least 10 characters."),
    )  # fmt: skip
    time_zone = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput(attrs={"data-time-zone": True}))


class SignUpForm(AccountForm):
    tenant_name = forms.CharField(
        label=_("Company or team"), max_length=NAME_CHARS_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
        help_text=_("Owns the instances and gets the bill. You can rename it."),
    )  # fmt: skip


class InviteForm(forms.Form):
    email = forms.EmailField(label=_("E-mail"), max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, initial=Role.DEVELOPER)


class TokenForm(forms.Form):
    name = forms.CharField(
        label=_("Name"), max_length=NAME_CHARS_MAX, help_text=_("What uses it, for example: deploy job.")
    )
    preset = forms.ChoiceField(
        label=_("May"), required=False, widget=forms.RadioSelect,
        choices=[*((preset.name, preset.label) for preset in PRESETS), ("", _("Choose one by one"))],
    )  # fmt: skip
    scopes = forms.MultipleChoiceField(choices=(), required=False, widget=forms.CheckboxSelectMultiple)
    days = forms.ChoiceField(label=_("Expires after"), choices=TOKEN_DAYS, initial="90", required=False)
    # Reloading the page that shows the secret submits the form again: one form creates only one token.
    once = forms.CharField(max_length=64, widget=forms.HiddenInput, required=False, initial=secrets.token_urlsafe)

    def __init__(self, *args: object, granted: frozenset[str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.granted = granted
        self.fields["scopes"].choices = [  # type: ignore[attr-defined]
            (scope.value, scope.label) for scope in Scope if scope.value in granted
        ]

    @property
    def presets(self) -> list[tuple[str, str | Promise, str | Promise]]:
        """Presets for the page: name, label, and description."""
        return [(preset.name, preset.label, preset.help_text) for preset in PRESETS]

    @property
    def groups(self) -> list[tuple[str | Promise, list[BoundWidget]]]:
        """Checkboxes of the scopes that may be granted, by group."""
        boxes = {str(box.data["value"]): box for box in self["scopes"]}
        named = [(group.label, [boxes[scope] for scope in group.scopes if scope in boxes]) for group in GROUPS]
        return [(label, found) for label, found in named if found]

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("preset"):
            values["scopes"] = preset_scopes(values["preset"], self.granted)
        if not values.get("scopes") and "scopes" not in self.errors:
            self.add_error("scopes", _("Choose what the token may do."))
        return values


class PreferencesForm(forms.Form):
    name = forms.CharField(label=_("Your name"), max_length=NAME_CHARS_MAX, required=False)
    language = forms.ChoiceField(label=_("Language"), choices=Language.choices)
    time_zone = forms.ChoiceField(
        label=_("Time zone"), choices=[(zone, zone) for zone in sorted(available_timezones())]
    )
    theme = forms.ChoiceField(label=_("Theme"), choices=Theme.choices)


class TenantForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=NAME_CHARS_MAX)


class AuditFilterForm(forms.Form):
    q = forms.CharField(required=False, max_length=128)
    page_token = forms.CharField(required=False, max_length=2048)


class VerifyForm(forms.Form):
    """Password of the account whose address is verified, unless its owner is signed in."""

    password = forms.CharField(
        label=_("Password"), max_length=PASSWORD_CHARS_MAX, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )  # fmt: skip

    def __init__(self, *args: object, needs_password: bool, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        if not needs_password:
            del self.fields["password"]

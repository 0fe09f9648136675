"""Forms of the console's frame: they parse input; permissions are checked by services."""

from __future__ import annotations

import secrets
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.forms.boundfield import BoundWidget
from django.forms.renderers import BaseRenderer
from django.forms.utils import flatatt
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _

from tenants.choices import Language, Role, Scope, Theme
from tenants.limits import NAME_CHARS_MAX, SSO_CLAIM_CHARS_MAX, SSO_TEXT_CHARS_MAX
from tenants.scope_groups import GROUPS, PRESETS, preset_scopes

PASSWORD_CHARS_MAX = 256
LINES_CHARS_MAX = 16_384
TOKEN_DAYS = (("30", _("30 days")), ("90", _("90 days")), ("365", _("1 year")), ("", _("Never")))


class AccountForm(forms.Form):
    """Form of a new account for a person, without a tenant."""

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
        groups = [(group.label, [boxes[scope] for scope in group.scopes if scope in boxes]) for group in GROUPS]
        return [(label, widgets) for label, widgets in groups if widgets]

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("preset"):
            values["scopes"] = preset_scopes(values["preset"], self.granted)
        if not values.get("scopes") and "scopes" not in self.errors:
            self.add_error("scopes", _("Choose what the token may do."))
        return values


class LongSelect(forms.Select):
    """Choice of one among hundreds, whose options are written in one pass instead of with a template each."""

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: BaseRenderer | None = None
    ) -> SafeString:
        options = format_html_join(
            "\n",
            '<option value="{}"{}>{}</option>',
            ((key, mark_safe(" selected") if key == value else "", label) for key, label in self.choices),
        )
        return format_html("<select{}>{}</select>", flatatt(self.build_attrs({"name": name}, attrs)), options)


class PreferencesForm(forms.Form):
    name = forms.CharField(label=_("Your name"), max_length=NAME_CHARS_MAX, required=False)
    language = forms.ChoiceField(label=_("Language"), choices=Language.choices)
    time_zone = forms.ChoiceField(
        label=_("Time zone"), choices=[(zone, zone) for zone in sorted(available_timezones())], widget=LongSelect
    )
    theme = forms.ChoiceField(label=_("Theme"), choices=Theme.choices)


class TenantForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=NAME_CHARS_MAX)


class SsoForm(forms.Form):
    """Identity provider of a tenant. Lists are lines of text; services check the values."""

    issuer = forms.CharField(
        label=_("Issuer"), max_length=SSO_TEXT_CHARS_MAX,
        help_text=_("Address of the provider, exactly as it names itself: https://login.example.com/tenant."),
        widget=forms.TextInput(attrs={"inputmode": "url", "autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    client_id = forms.CharField(label=_("Client id"), max_length=SSO_TEXT_CHARS_MAX)
    client_secret = forms.CharField(
        label=_("Client secret"), max_length=SSO_TEXT_CHARS_MAX, required=False, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_("Never shown again. Empty: the stored one stays."),
    )  # fmt: skip
    domains = forms.CharField(
        label=_("E-mail domains"), max_length=LINES_CHARS_MAX, widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("One a line. Addresses of other domains do not sign in."),
    )  # fmt: skip
    role_claim = forms.CharField(
        label=_("Role claim"), max_length=SSO_CLAIM_CHARS_MAX, required=False,
        help_text=_("Name of the claim with groups or roles, for example groups. Empty: members keep their roles."),
    )  # fmt: skip
    roles = forms.CharField(
        label=_("Roles"), max_length=LINES_CHARS_MAX, required=False, widget=forms.Textarea(attrs={"rows": 4}),
        help_text=_("One a line: value = admin, developer, finance or viewer. The highest counts."),
    )  # fmt: skip
    required = forms.BooleanField(
        label=_("Members use single sign-on only"), required=False,
        help_text=_("Passwords and passkeys of members open this tenant no more; those of owners still do."),
    )  # fmt: skip
    assume_email_verified = forms.BooleanField(
        label=_("Addresses count as verified where the provider does not say"), required=False,
        help_text=_(
            "Only for a provider whose tokens have no email_verified (Microsoft Entra ID) and whose addresses are set "
            "by your administrators alone: whoever can write an address there signs in as the member who has it."
        ),
    )  # fmt: skip

    def clean_client_secret(self) -> str | None:
        return self.cleaned_data["client_secret"] or None

    def clean_domains(self) -> list[str]:
        return str(self.cleaned_data["domains"]).replace(",", " ").split()

    def clean_roles(self) -> list[dict[str, str]]:
        lines = [line for line in self.cleaned_data["roles"].splitlines() if line.strip()]
        parts = [line.rpartition("=") for line in lines]
        if any(not equals or role.strip() not in Role.values for _value, equals, role in parts):
            raise forms.ValidationError(_("Write each line as: value = role."))
        return [{"value": value.strip(), "role": role.strip()} for value, _equals, role in parts]


class AuditFilterForm(forms.Form):
    q = forms.CharField(required=False, max_length=128)
    page_token = forms.CharField(required=False, max_length=2048)


class VerifyForm(forms.Form):
    """Form that verifies an e-mail address. It requires the account's password unless its owner is signed in."""

    password = forms.CharField(
        label=_("Password"), max_length=PASSWORD_CHARS_MAX, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )  # fmt: skip

    def __init__(self, *args: object, needs_password: bool, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        if not needs_password:
            del self.fields["password"]

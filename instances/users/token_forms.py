"""Form for the OAuth configuration; services check it."""

from __future__ import annotations

import json
from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tenants.limits import REQUEST_BODY_BYTES_MAX

TEXT_CHARS_MAX: Final = 1_024
CLOCK_SKEW_S: Final = 30


class TokensForm(forms.Form):
    issuer = forms.CharField(
        label=gettext_lazy("Issuer"), max_length=TEXT_CHARS_MAX, strip=False,
        help_text=gettext_lazy("What tokens have as iss, to the letter."),
    )  # fmt: skip
    audience = forms.CharField(
        label=gettext_lazy("Audience"), max_length=TEXT_CHARS_MAX, strip=False,
        help_text=gettext_lazy("What tokens must have as aud, or in it."),
    )  # fmt: skip
    jwks_url = forms.CharField(
        label=gettext_lazy("Address of the key set"), max_length=TEXT_CHARS_MAX, required=False,
        help_text=gettext_lazy("By https. It is fetched every few minutes."),
    )  # fmt: skip
    jwks = forms.CharField(
        label=gettext_lazy("Or the key set itself"), max_length=REQUEST_BODY_BYTES_MAX, required=False,
        widget=forms.Textarea(attrs={"rows": 4}), help_text=gettext_lazy("JSON (RFC 7517), of public keys alone."),
    )  # fmt: skip
    principal_claim = forms.CharField(
        label=gettext_lazy("Claim that names the user"), max_length=TEXT_CHARS_MAX, initial="sub",
        help_text=gettext_lazy("For access rules and quotas."),
    )  # fmt: skip
    clock_skew_seconds = forms.IntegerField(
        label=gettext_lazy("Clocks may differ by"), min_value=0, max_value=300, initial=CLOCK_SKEW_S
    )

    def clean_jwks(self) -> dict[str, Any] | None:
        text = self.cleaned_data["jwks"]
        if not text:
            return None
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise forms.ValidationError(_("This is no JSON document of a key set."))
        return document

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if not self.errors and bool(values.get("jwks_url")) == (values.get("jwks") is not None):
            self.add_error("jwks_url", _("Give either an address or the key set."))
        return values

    def arguments(self) -> dict[str, Any]:
        """Returns the valid values as the argument of the service."""
        return {**self.cleaned_data, "jwks_url": self.cleaned_data["jwks_url"] or None}

"""Forms for certificates. They read pasted text; services check it."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from tenants.limits import REQUEST_BODY_BYTES_MAX

# Size limit of an API request; services check the smaller limit of each field.
PEM_CHARS_MAX: Final = REQUEST_BODY_BYTES_MAX


class SecretArea(forms.Textarea):
    """A text area that does not show its value again."""

    def format_value(self, value: Any) -> str:
        return ""


class ClientCaForm(forms.Form):
    ca_pem = forms.CharField(
        label=_("Certificates of authorities"), widget=forms.Textarea, max_length=PEM_CHARS_MAX,
        help_text=_("PEM, one behind the other. Clients whose certificates others signed do not come in any more."),
    )  # fmt: skip


class RevocationListForm(forms.Form):
    crl_pem = forms.CharField(
        label=_("Revocation list"), widget=forms.Textarea, max_length=PEM_CHARS_MAX,
        help_text=_(
            "PEM, one list of each authority. It replaces the previous one; clients with revoked certificates are "
            "disconnected."
        ),
    )  # fmt: skip


class CertificateForm(forms.Form):
    certificate_pem = forms.CharField(
        label=_("Certificate"), widget=forms.Textarea, max_length=PEM_CHARS_MAX,
        help_text=_("PEM: the brokers' certificate, then those between it and its authority."),
    )  # fmt: skip
    private_key_pem = forms.CharField(
        label=_("Private key"), widget=SecretArea, max_length=PEM_CHARS_MAX,
        help_text=_("PEM, without a password. It is kept encrypted and never shown again."),
    )  # fmt: skip

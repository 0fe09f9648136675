"""Certificates on the page of a route: its own, the authority of its clients, and what of theirs is revoked.

What has no service is not on the page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from django import forms
from django.contrib import messages
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from instances import services
from instances.models import Instance, Route
from instances.routes.kinds import MTLS, WITH_TLS
from tenants.errors import DomainError, NotFound
from tenants.limits import REQUEST_BODY_BYTES_MAX
from tenants.views.base import add_errors, wording

# What a form takes, as much as a request of the API; services know what each may really have.
PEM_CHARS_MAX: Final = REQUEST_BODY_BYTES_MAX
INSTANTS: Final = ("not_before", "not_after", "this_update", "next_update")


class SecretArea(forms.Textarea):
    """What was typed is not shown again."""

    def format_value(self, value: Any) -> str:
        return ""


def _pem_field(label: Any, help_text: Any) -> forms.CharField:
    return forms.CharField(label=label, widget=forms.Textarea, max_length=PEM_CHARS_MAX, help_text=help_text)


class ClientCaForm(forms.Form):
    ca_pem = _pem_field(
        gettext_lazy("Certificates of authorities"),
        gettext_lazy("PEM, one behind the other. Clients whose certificates others signed do not come in any more."),
    )


class RevocationListForm(forms.Form):
    crl_pem = _pem_field(
        gettext_lazy("Revocation list"),
        gettext_lazy("PEM, one of each authority. It replaces the one before; whom it names is disconnected."),
    )


class CertificateForm(forms.Form):
    certificate_pem = _pem_field(
        gettext_lazy("Certificate"),
        gettext_lazy("PEM: the brokers' certificate, then those between it and its authority."),
    )
    private_key_pem = forms.CharField(
        label=gettext_lazy("Private key"), widget=SecretArea, max_length=PEM_CHARS_MAX,
        help_text=gettext_lazy("PEM, without a password. It is kept encrypted and never shown again."),
    )  # fmt: skip


class Part(NamedTuple):
    """Something of a route that is set and removed as a whole. `attribute` of the route is what may be shown of it."""

    attribute: str
    form: type[forms.Form]
    setter: str
    remover: str
    securities: frozenset[str]

    @property
    def is_offered(self) -> bool:
        return service(self.setter) is not None and service(self.remover) is not None


PARTS: Final = {
    "client_ca": Part("client_ca", ClientCaForm, "set_client_ca", "remove_client_ca", frozenset({MTLS})),
    "revocation_list": Part(
        "revocation", RevocationListForm, "set_revocation_list", "remove_revocation_list", frozenset({MTLS})
    ),
    "certificate": Part("certificate", CertificateForm, "set_certificate", "remove_certificate", WITH_TLS),
}
REMOVE: Final = "remove_"


def service(name: str) -> Callable[..., Any] | None:
    """None while there is none of that name."""
    found: Callable[..., Any] | None = getattr(services, name, None)
    return found


def change_certificates(
    request: HttpRequest, instance: Instance, route: Route, asked: str
) -> dict[str, forms.Form] | None:
    """Do what a form or a button asks for. None when it is done, else the forms that say what is wrong. Raises
    `NotFound` for a part that there is not.
    """
    name = asked.removeprefix(REMOVE)
    part = PARTS.get(name)
    if part is None or not part.is_offered:
        raise NotFound
    target = {"acting": request.actor, "instance": instance, "route": route}  # type: ignore[attr-defined]
    if asked.startswith(REMOVE):
        try:
            _call(part.remover, **target)
            messages.success(request, _("Saved. It is in force within a second."))
        except DomainError as error:
            messages.error(request, wording(error))
        return None
    form = part.form(request.POST, auto_id=f"{name}-%s")
    if form.is_valid():
        try:
            _call(part.setter, **target, **form.cleaned_data)
        except DomainError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Saved. It is in force within a second."))
            return None
    return {name: form}


def _call(name: str, **arguments: Any) -> None:
    found = service(name)
    assert found is not None, "the part is offered"
    found(**arguments)


def certificate_context(route: Route, wrong: dict[str, forms.Form]) -> dict[str, Any]:
    """Of each part that is offered for the route: what is there, and the form that replaces it."""
    shown = {
        name: {
            "is_set": getattr(route, part.attribute, None) is not None,
            "facts": _with_instants(getattr(route, part.attribute, None) or {}),
            "form": wrong.get(name) or part.form(auto_id=f"{name}-%s"),
            "is_wrong": name in wrong,
        }
        for name, part in PARTS.items()
        if part.is_offered and route.security in part.securities
    }
    return {"parts": shown}


def _with_instants(facts: dict[str, Any]) -> dict[str, Any]:
    """A row keeps instants as text."""
    return {
        name: parse_datetime(value) if name in INSTANTS and isinstance(value, str) else value
        for name, value in facts.items()
    }

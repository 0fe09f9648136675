"""Certificates on the page of a route: its own, its clients' authority, and the revocation list."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from django import forms
from django.contrib import messages
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from instances import services
from instances.models import Instance, Route
from instances.routes.certificate_forms import CertificateForm, ClientCaForm, RevocationListForm
from instances.routes.kinds import MTLS, WITH_TLS
from tenants.errors import DomainError, NotFound
from tenants.views.base import add_errors, wording

DATETIME_FACTS: Final = ("not_before", "not_after", "this_update", "next_update")


class CertificatePart(NamedTuple):
    """A part of a route that is set and removed as a whole. `attribute` of the route is its public summary; `setter`
    and `remover` are names of services.
    """

    attribute: str
    form: type[forms.Form]
    setter: str
    remover: str
    securities: frozenset[str]


CERTIFICATE_PARTS: Final = {
    "client_ca": CertificatePart("client_ca", ClientCaForm, "set_client_ca", "remove_client_ca", frozenset({MTLS})),
    "revocation_list": CertificatePart(
        "revocation", RevocationListForm, "set_revocation_list", "remove_revocation_list", frozenset({MTLS})
    ),
    "certificate": CertificatePart("certificate", CertificateForm, "set_certificate", "remove_certificate", WITH_TLS),
}
REMOVE: Final = "remove_"


def change_certificates(
    request: HttpRequest, instance: Instance, route: Route, action: str
) -> dict[str, forms.Form] | None:
    """Sets or removes a part. Returns None when it is done, else the form with its errors by the name of the part.

    Raises `NotFound` for an unknown part.
    """
    name = action.removeprefix(REMOVE)
    part = CERTIFICATE_PARTS.get(name)
    if part is None:
        raise NotFound
    target = {"acting": request.actor, "instance": instance, "route": route}  # type: ignore[attr-defined]
    if action.startswith(REMOVE):
        try:
            getattr(services, part.remover)(**target)
            messages.success(request, _("Saved. It is in force within a second."))
        except DomainError as error:
            messages.error(request, wording(error))
        return None
    form = part.form(request.POST, auto_id=f"{name}-%s")
    if form.is_valid():
        try:
            getattr(services, part.setter)(**target, **form.cleaned_data)
        except DomainError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Saved. It is in force within a second."))
            return None
    return {name: form}


def certificate_context(route: Route, invalid_forms: dict[str, forms.Form]) -> dict[str, Any]:
    """Returns the summary and the form of each part that a route of this security has."""
    parts = {
        name: {
            "is_set": getattr(route, part.attribute) is not None,
            "facts": _parse_datetimes(getattr(route, part.attribute) or {}),
            "form": invalid_forms.get(name) or part.form(auto_id=f"{name}-%s"),
            "is_wrong": name in invalid_forms,
        }
        for name, part in CERTIFICATE_PARTS.items()
        if route.security in part.securities
    }
    return {"parts": parts}


def _parse_datetimes(facts: dict[str, Any]) -> dict[str, Any]:
    """Parses instants, which a row stores as text."""
    return {
        name: parse_datetime(value) if name in DATETIME_FACTS and isinstance(value, str) else value
        for name, value in facts.items()
    }

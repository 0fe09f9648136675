"""Writes: billing details that a tenant sets itself. Tax rates and minimums are set by operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext_noop

from billing.models import BillingProfile
from billing.models.agreements import EMAILS_SEPARATOR
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import FieldError, Invalid
from tenants.models import Tenant

FIELDS = ("legal_name", "address", "country", "tax_id", "email", "purchase_order")


@transaction.atomic
def change(*, acting: Actor, changes: Mapping[str, Any]) -> BillingProfile:
    """Changes billing details; invoices issued from then on show them. `emails` is a list of addresses.

    Raises:
        Invalid: a text is too long, has too many lines or unprintable characters, or is not an address.
    """
    access.require(acting, Scope.BILLING_WRITE)
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=access.tenant_of(acting).pk)
    profile = BillingProfile.objects.filter(tenant=tenant).first() or BillingProfile(tenant=tenant)
    values = dict(changes)
    if "emails" in values:
        values["email"] = EMAILS_SEPARATOR.join(values.pop("emails"))
    before = {name: getattr(profile, name) for name in values}
    for name, value in values.items():
        setattr(profile, name, value.strip().replace("\r\n", "\n"))
    try:
        profile.clean_fields(exclude=[field.name for field in profile._meta.fields if field.name not in FIELDS])
    except ValidationError as error:
        raise Invalid(
            gettext_noop("A billing detail is wrong."),
            errors=[
                FieldError(pointer=f"/{'emails' if name == 'email' else name}", detail=str(sentence), code="not_valid")
                for name, sentences in error.message_dict.items()
                for sentence in sentences
            ],
        ) from None
    after = {name: getattr(profile, name) for name in values}
    if after != before:
        profile.save()
        audit.record(acting, "billing_profile.changed", profile, before, after, tenant=tenant)
    return profile

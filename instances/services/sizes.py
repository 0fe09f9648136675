"""Checks of an instance's size against its plan, the tenant's limits and the growth settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, Sum
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.interfaces import PlanTerms
from instances.lifecycle.phases import COUNTED, Phase
from instances.limits import DELETED_STORAGE_GB_MAX
from instances.models import Instance
from instances.services.common import hold_ceiling
from tenants import selectors as tenant_selectors
from tenants.errors import FieldError, Invalid, Message, QuotaExceeded
from tenants.limits import UNVERIFIED_BANDWIDTH_MB_S_MAX, UNVERIFIED_STORAGE_GB_MAX
from tenants.models import Tenant

GROWTH_SETTINGS = ("storage_grow_step_gb", "storage_grow_max_gb")


def terms_for(
    plan: str | None,
    *,
    bandwidth_mb_s: int | None,
    storage_gb: int | None,
    held: str | None = None,
    currency: str | None = None,
) -> PlanTerms:
    """Returns the terms of a plan by its code, or of the smallest plan for a size. The instance's own plan, `held`, is
    found even if it is no longer sold. With a `currency`, only plans with a price in it are sold.

    Raises `Invalid` for an unknown code, and `QuotaExceeded` if no plan is that large.
    """
    terms = interfaces.plan_catalogue.it(
        plan, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, held=held, currency=currency
    )
    if terms is None and plan:
        raise Invalid.at("/plan", "There is no such plan on sale.", code="unknown_plan")
    if terms is None:
        raise QuotaExceeded("No plan on sale is that large.")
    return terms


def require_deleted_room(tenant: Tenant) -> None:
    """Raises `QuotaExceeded` (`deleted_storage`) if the tenant's deleted instances occupy `DELETED_STORAGE_GB_MAX` or
    more: one has to be purged or restored first.
    """
    rows = Instance.objects.filter(tenant=tenant, phase=Phase.DELETING.value)
    held_gb = rows.aggregate(gb=Sum("storage_gb"))["gb"] or 0
    if held_gb >= DELETED_STORAGE_GB_MAX:
        text = gettext_noop(
            "Deleted instances that can still be restored hold %(held)s GB of storage; from %(most)s GB on nothing is "
            "created or grown. Purge or restore one of them."
        )
        raise QuotaExceeded(Message(text, held=held_gb, most=DELETED_STORAGE_GB_MAX), code="deleted_storage")


def require_verified(tenant: Tenant, *, bandwidth_mb_s: int, storage_gb: int, besides: Instance | None = None) -> None:
    """Raises `QuotaExceeded` (`unverified`) if the tenant's instances would exceed the limits of tenants without a
    verified owner. The storage of deleted instances counts until they are purged. `besides` is the instance that gets
    this size; a size that does not grow is not refused, unless the instance is failed or deleted. The size stays within
    the limits until the transaction ends.
    """
    if tenant_selectors.is_verified(tenant):
        return
    hold_ceiling(tenant)
    others = Instance.objects.filter(tenant=tenant)
    if besides is not None:
        others = others.exclude(pk=besides.pk)
    is_counted = Q(phase__in=[phase.value for phase in COUNTED])
    held = others.aggregate(
        mb_s=Sum("bandwidth_mb_s", filter=is_counted),
        gb=Sum("storage_gb", filter=is_counted | Q(phase=Phase.DELETING.value)),
    )
    is_grown = besides is None or besides.current_phase not in COUNTED
    errors = [
        FieldError(pointer=pointer, detail=_beyond_the_ceiling(most, unit), code="unverified")
        for pointer, asked, had, total, most, unit in (
            ("/bandwidth_mb_s", bandwidth_mb_s, besides.bandwidth_mb_s if besides else 0, held["mb_s"],
             UNVERIFIED_BANDWIDTH_MB_S_MAX, "MB/s"),
            ("/storage_gb", storage_gb, besides.storage_gb if besides else 0, held["gb"],
             UNVERIFIED_STORAGE_GB_MAX, "GB"),
        )
        if asked + (total or 0) > most and (is_grown or asked > had)
    ]  # fmt: skip
    if errors:
        raise QuotaExceeded(errors[0].detail, code="unverified", errors=errors)


def _beyond_the_ceiling(most: int, unit: str) -> Message:
    return Message(
        gettext_noop(
            "Until an owner has verified an e-mail address, all instances together have at most %(most)s %(unit)s; "
            "the storage of deleted ones counts until they are purged. Verify yours in the console, under Settings."
        ),
        most=most,
        unit=unit,
    )


def require_growth(terms: PlanTerms, settings: Mapping[str, Any], *, storage_gb: int) -> None:
    """Raises `Invalid` for growth settings without a step, without a sufficient maximum, or beyond the plan."""
    step_gb, max_gb = settings.get("storage_grow_step_gb"), settings.get("storage_grow_max_gb")
    if step_gb is None and max_gb is None:
        return
    if step_gb is None:
        detail = Message(gettext_noop("Say by how many GB it grows, or give no end either."))
        raise Invalid.at("/settings/storage_grow_step_gb", detail, code="required")
    at = "/settings/storage_grow_max_gb"
    if max_gb is None:
        raise Invalid.at(at, Message(gettext_noop("Say how far it may grow, in GB.")), code="required")
    if max_gb <= storage_gb:
        detail = Message(gettext_noop("It has %(gb)s GB already; give more than that."), gb=storage_gb)
        raise Invalid.at(at, detail, code="too_small")
    if max_gb > terms.storage_gb_max:
        detail = Message(gettext_noop("The plan %(plan)s reaches %(gb)s GB."), plan=terms.name, gb=terms.storage_gb_max)
        raise Invalid.at(at, detail, code="quota_exceeded")


def require_within(terms: PlanTerms, *, bandwidth_mb_s: int, storage_gb: int) -> None:
    """Raises `QuotaExceeded` with a pointer for each value beyond the plan."""
    errors = [
        FieldError(
            pointer=pointer,
            detail=Message(gettext_noop("The plan %(plan)s reaches %(most)s."), plan=terms.name, most=f"{most} {unit}"),
            code="quota_exceeded",
        )
        for pointer, asked, most, unit in (
            ("/bandwidth_mb_s", bandwidth_mb_s, terms.bandwidth_mb_s_max, "MB/s"),
            ("/storage_gb", storage_gb, terms.storage_gb_max, "GB"),
        )
        if asked > most
    ]
    if errors:
        raise QuotaExceeded(errors[0].detail, errors=errors)

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
from instances.services.common import lock_unverified_sizes
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
    current_plan: str | None = None,
    currency: str | None = None,
) -> PlanTerms:
    """Returns the terms of a plan by its code, or of the smallest plan for a size. The plan that the instance has,
    `current_plan`, is found even if it is no longer sold. With a `currency`, only plans with a price in it are sold.

    Raises `Invalid` for an unknown code, and `QuotaExceeded` if no plan is that large.
    """
    terms = interfaces.plan_catalogue.implementation(
        plan, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, current_plan=current_plan, currency=currency
    )
    if terms is None and plan:
        raise Invalid.at("/plan", "There is no such plan on sale.", code="unknown_plan")
    if terms is None:
        raise QuotaExceeded("No plan on sale is that large.")
    return terms


def require_deleted_storage_quota(tenant: Tenant) -> None:
    """Raises `QuotaExceeded` (`deleted_storage`) if the tenant's deleted instances occupy `DELETED_STORAGE_GB_MAX` or
    more: one has to be purged or restored first.
    """
    rows = Instance.objects.filter(tenant=tenant, phase=Phase.DELETING.value)
    deleted_gb = rows.aggregate(gb=Sum("storage_gb"))["gb"] or 0
    if deleted_gb >= DELETED_STORAGE_GB_MAX:
        text = gettext_noop(
            "Deleted instances that can still be restored hold %(held)s GB of storage; from %(most)s GB on nothing is "
            "created or grown. Purge or restore one of them."
        )
        raise QuotaExceeded(Message(text, held=deleted_gb, most=DELETED_STORAGE_GB_MAX), code="deleted_storage")


def require_within_unverified_limits(
    tenant: Tenant, *, bandwidth_mb_s: int, storage_gb: int, resized: Instance | None = None
) -> None:
    """Raises `QuotaExceeded` (`unverified`) if the tenant's instances would exceed the limits of tenants without a
    verified owner. The storage of deleted instances counts until they are purged. `resized` is the instance that gets
    this size; a size that does not grow is not refused, unless the instance is failed or deleted. The size stays within
    the limits until the transaction ends.
    """
    if tenant_selectors.is_verified(tenant):
        return
    lock_unverified_sizes(tenant)
    others = Instance.objects.filter(tenant=tenant)
    if resized is not None:
        others = others.exclude(pk=resized.pk)
    is_counted = Q(phase__in=[phase.value for phase in COUNTED])
    others_size = others.aggregate(
        mb_s=Sum("bandwidth_mb_s", filter=is_counted),
        gb=Sum("storage_gb", filter=is_counted | Q(phase=Phase.DELETING.value)),
    )
    is_counted_anew = resized is None or resized.current_phase not in COUNTED
    errors = [
        FieldError(pointer=pointer, detail=_unverified_limit_detail(limit, unit), code="unverified")
        for pointer, size, current_size, others_total, limit, unit in (
            ("/bandwidth_mb_s", bandwidth_mb_s, resized.bandwidth_mb_s if resized else 0, others_size["mb_s"],
             UNVERIFIED_BANDWIDTH_MB_S_MAX, "MB/s"),
            ("/storage_gb", storage_gb, resized.storage_gb if resized else 0, others_size["gb"],
             UNVERIFIED_STORAGE_GB_MAX, "GB"),
        )
        if size + (others_total or 0) > limit and (is_counted_anew or size > current_size)
    ]  # fmt: skip
    if errors:
        raise QuotaExceeded(errors[0].detail, code="unverified", errors=errors)


def _unverified_limit_detail(limit: int, unit: str) -> Message:
    return Message(
        gettext_noop(
            "Until an owner has verified an e-mail address, all instances together have at most %(most)s %(unit)s; "
            "the storage of deleted ones counts until they are purged. Verify yours in the console, under Settings."
        ),
        most=limit,
        unit=unit,
    )


def require_valid_growth(terms: PlanTerms, settings: Mapping[str, Any], *, storage_gb: int) -> None:
    """Raises `Invalid` for growth settings without a step, without a sufficient maximum, or beyond the plan."""
    step_gb, max_gb = settings.get("storage_grow_step_gb"), settings.get("storage_grow_max_gb")
    if step_gb is None and max_gb is None:
        return
    if step_gb is None:
        detail = Message(gettext_noop("Say by how many GB it grows, or give no end either."))
        raise Invalid.at("/settings/storage_grow_step_gb", detail, code="required")
    max_pointer = "/settings/storage_grow_max_gb"
    if max_gb is None:
        raise Invalid.at(max_pointer, Message(gettext_noop("Say how far it may grow, in GB.")), code="required")
    if max_gb <= storage_gb:
        detail = Message(gettext_noop("It has %(gb)s GB already; give more than that."), gb=storage_gb)
        raise Invalid.at(max_pointer, detail, code="too_small")
    if max_gb > terms.storage_gb_max:
        detail = Message(gettext_noop("The plan %(plan)s reaches %(gb)s GB."), plan=terms.name, gb=terms.storage_gb_max)
        raise Invalid.at(max_pointer, detail, code="quota_exceeded")


def require_within_plan(terms: PlanTerms, *, bandwidth_mb_s: int, storage_gb: int) -> None:
    """Raises `QuotaExceeded` with a pointer for each value beyond the plan."""
    errors = [
        FieldError(
            pointer=pointer,
            detail=Message(
                gettext_noop("The plan %(plan)s reaches %(most)s."), plan=terms.name, most=f"{limit} {unit}"
            ),
            code="quota_exceeded",
        )
        for pointer, size, limit, unit in (
            ("/bandwidth_mb_s", bandwidth_mb_s, terms.bandwidth_mb_s_max, "MB/s"),
            ("/storage_gb", storage_gb, terms.storage_gb_max, "GB"),
        )
        if size > limit
    ]
    if errors:
        raise QuotaExceeded(errors[0].detail, errors=errors)

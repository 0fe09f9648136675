"""Which size a tenant asks for, checked against the plan."""

from __future__ import annotations

from instances import interfaces
from instances.interfaces import PlanTerms
from tenants.errors import FieldError, Invalid, QuotaExceeded


def terms_for(
    plan: str | None, *, bandwidth_mb_s: int | None, storage_gb: int | None, held: str | None = None
) -> PlanTerms:
    """The terms of a plan by its code, or of the smallest that holds the size. The plan that an instance has, `held`,
    stays its own when it is sold no more.

    Raises `Invalid` for an unknown code and `QuotaExceeded` when no plan is that large.
    """
    terms = interfaces.plan_catalogue.it(plan, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, held=held)
    if terms is None and plan:
        raise Invalid.at("/plan", "There is no such plan on sale.", code="unknown_plan")
    if terms is None:
        raise QuotaExceeded("No plan on sale is that large.")
    return terms


def require_within(terms: PlanTerms, *, bandwidth_mb_s: int, storage_gb: int) -> None:
    """Raise `QuotaExceeded` with a place for each value that the plan does not reach."""
    errors = [
        FieldError(pointer=pointer, detail=f"The plan {terms.name} reaches {most} {unit}.", code="quota_exceeded")
        for pointer, asked, most, unit in (
            ("/bandwidth_mb_s", bandwidth_mb_s, terms.bandwidth_mb_s_max, "MB/s"),
            ("/storage_gb", storage_gb, terms.storage_gb_max, "GB"),
        )
        if asked > most
    ]
    if errors:
        raise QuotaExceeded(errors[0].detail, errors=errors)

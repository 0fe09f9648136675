"""Rate limits of a tenant's expensive calls, counted over the API and the console together."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from tenants.api import rates
from tenants.errors import RateLimited
from tenants.models import Tenant

RECOMPUTATIONS_PER_MINUTE_MAX = 6
COSTS_PER_MINUTE_MAX = 120
PDFS_PER_MINUTE_MAX = 30
# Valid codes count like invalid ones, so that codes cannot be found by guessing.
COUPONS_PER_MINUTE_MAX = 6
# Maximum number of lake rows read in a request: about three seconds if all belong to the tenant. `manage.py invoices
# recompute` has no such limit.
REPLAYED_ROWS_MAX = 5_000_000
TOO_MANY_RECOMPUTATIONS = gettext_noop("This is worked out a few times a minute. Wait before the next request.")


def charge_recomputation(tenant: Tenant) -> None:
    """Counts one recomputation of an invoice. Raises `RateLimited`."""
    _charge(f"recompute:{tenant.pk}", RECOMPUTATIONS_PER_MINUTE_MAX)


def charge_costs(tenant: Tenant) -> None:
    """Counts one request for costs. Raises `RateLimited`."""
    _charge(f"costs:{tenant.pk}", COSTS_PER_MINUTE_MAX)


def charge_pdf(tenant: Tenant) -> None:
    """Counts one rendered document. Raises `RateLimited`."""
    _charge(f"pdf:{tenant.pk}", PDFS_PER_MINUTE_MAX)


def charge_coupon(tenant: Tenant) -> None:
    """Counts one attempt to redeem a coupon. Raises `RateLimited`."""
    _charge(
        f"coupon:{tenant.pk}", COUPONS_PER_MINUTE_MAX,
        gettext_noop("Too many codes in a minute. Wait before the next one."),
    )  # fmt: skip


def _charge(name: str, limit: int, text: str = TOO_MANY_RECOMPUTATIONS) -> None:
    rate = rates.charge_counter(name, limit)
    if rate is not None and rate.is_exceeded:
        raise RateLimited(text, retry_after_s=rate.reset_s)

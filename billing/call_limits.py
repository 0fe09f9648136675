"""How often a tenant has something made that takes long, by the API and the console together."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from tenants.actors import Actor
from tenants.api import rates
from tenants.errors import RateLimited
from tenants.models import Tenant

RECOMPUTATIONS_PER_MINUTE_MAX = 6
COSTS_PER_MINUTE_MAX = 120
PDFS_PER_MINUTE_MAX = 30
# Codes that are wrong as well as right ones: nobody finds one by trying.
COUPONS_PER_MINUTE_MAX = 6
# Rows of the lake that are read in a request: three seconds, if all of them are the tenant's. `manage.py invoices
# recompute` reads all of it.
REPLAYED_ROWS_MAX = 5_000_000
WORKED_OUT = gettext_noop("This is worked out a few times a minute. Wait before the next request.")


def charge_recomputation(tenant: Tenant) -> None:
    """Raises `RateLimited`."""
    _charge(f"recompute:{tenant.pk}", RECOMPUTATIONS_PER_MINUTE_MAX)


def charge_costs(tenant: Tenant) -> None:
    """Raises `RateLimited`."""
    _charge(f"costs:{tenant.pk}", COSTS_PER_MINUTE_MAX)


def charge_pdf(tenant: Tenant) -> None:
    """Raises `RateLimited`."""
    _charge(f"pdf:{tenant.pk}", PDFS_PER_MINUTE_MAX)


def charge_coupon(tenant: Tenant) -> None:
    """Raises `RateLimited`."""
    _charge(
        f"coupon:{tenant.pk}", COUPONS_PER_MINUTE_MAX,
        gettext_noop("Too many codes in a minute. Wait before the next one."),
    )  # fmt: skip


def charge_write(acting: Actor) -> None:
    """A change in the console counts as one over the API does. Raises `RateLimited`."""
    rate = rates.charge(acting.id, is_anonymous=False, is_write=True)
    if rate is not None and rate.is_exceeded:
        raise RateLimited(
            gettext_noop("Too many changes in a minute. Wait before the next one."), retry_after_s=rate.reset_s
        )


def _charge(name: str, limit: int, text: str = WORKED_OUT) -> None:
    rate = rates.charge_named(name, limit)
    if rate is not None and rate.is_exceeded:
        raise RateLimited(text, retry_after_s=rate.reset_s)

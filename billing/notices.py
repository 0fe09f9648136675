"""Reads: notices about the account on the tenant's first page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.dunning.services import overdue_of
from instances.interfaces import AccountNotice
from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.formatting import money


def account_notices(acting: Actor) -> Sequence[AccountNotice]:
    """Returns a notice about overdue invoices, with the amount for members who may see invoices."""
    now = timezone.now()
    overdue = overdue_of(access.tenant_of(acting), now)
    if not overdue:
        return ()
    days = (now - overdue[0].due_at).days
    if not access.permits(acting, Scope.BILLING_READ):
        text = ngettext("An invoice is overdue, for %(n)d day", "An invoice is overdue, for %(n)d days", days)
        return (AccountNotice(text=text % {"n": days}),)
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for invoice in overdue:
        sums[invoice.currency] += invoice.open_amount  # type: ignore[attr-defined]
    amounts = _(", ").join(str(money(amount, currency)) for currency, amount in sorted(sums.items()))
    text = ngettext("%(amounts)s overdue, for %(n)d day", "%(amounts)s overdue, for %(n)d days", days)
    return (AccountNotice(text=text % {"amounts": amounts, "n": days}, link=reverse("page-invoices")),)

"""Form of the invoices page that redeems a coupon."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from billing import coupons
from billing.models.agreements import DISCOUNT_CODE_CHARS_MAX
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import console_page, wording


@console_page(Scope.BILLING_WRITE)
@require_POST
def redeem_coupon(request: HttpRequest) -> HttpResponse:
    """Redeems a coupon and redirects to the page with the result."""
    code = request.POST.get("code", "")[: DISCOUNT_CODE_CHARS_MAX + 1]
    try:
        discount = coupons.redeem(acting=request.actor, code=code, now=timezone.now())  # type: ignore[attr-defined]
        messages.success(request, _("Code %(code)s is redeemed.") % {"code": discount.code})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-invoices")

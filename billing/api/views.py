"""REST resources of plans (`/plans`), quotes (`/prices:quote`) and usage (`/instances/{id}/usage`)."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from billing import metered, selectors
from billing.api.serializers import PlanOut, QuoteOut, QuoteQuery, UsageOut, UsageQuery
from billing.models import Plan
from instances import access
from tenants.actors import Actor
from tenants.api import pages
from tenants.api.base import SIGNED_IN, ApiView, endpoint
from tenants.choices import Scope
from tenants.errors import FieldError, Invalid, NotFound
from tenants.models import Tenant


class PlanCollection(ApiView):
    tag = "Plans"

    @endpoint("list_plans", SIGNED_IN, page_item=PlanOut)
    def get(self, request: Request) -> Response:
        """List the plans on sale.

        Smallest first, each with its price in force in the currency of your tenant.
        """
        plans = selectors.with_prices(
            selectors.plans_on_sale(currency=_currency_of(self.actor)), _currency_of(self.actor)
        )
        return self.page(plans, PlanOut, order=("position", "code"))


class PriceQuote(ApiView):
    tag = "Plans"

    @endpoint("quote_price", SIGNED_IN, query=QuoteQuery, returns=QuoteOut, errors=(404,))
    def get(self, request: Request) -> Response:
        """Quote a price before buying.

        Quantities default to the included ones of the plan. Nothing is reserved.
        """
        query = self.query
        currency = _currency_of(self.actor)
        plan = selectors.plan_for(
            query.get("plan"), bandwidth_mb_s=query.get("bandwidth_mb_s"), storage_gb=query.get("storage_gb"),
            currency=None if query.get("plan") else currency,
        )  # fmt: skip
        if plan is None:
            raise NotFound("No plan on sale can hold this.", code="no_such_plan")
        bandwidth_mb_s = query.get("bandwidth_mb_s") or plan.bandwidth_mb_s
        storage_gb = query.get("storage_gb") or plan.storage_gb
        _require_at_most("bandwidth_mb_s", bandwidth_mb_s, plan.bandwidth_mb_s_max, plan)
        _require_at_most("storage_gb", storage_gb, plan.storage_gb_max, plan)
        quoted = selectors.quote_for(plan, currency=currency, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)
        if quoted is None:
            raise NotFound(f"Plan {plan.code} has no price yet.", code="no_price")
        return self.one(
            {
                "plan": plan.code,
                "bandwidth_mb_s": bandwidth_mb_s,
                "storage_gb": storage_gb,
                "currency": quoted.currency,
                "lines": quoted.lines,
                "per_hour": quoted.per_hour,
                "per_month": quoted.per_month,
            },
            QuoteOut,
        )


class InstanceUsage(ApiView):
    tag = "Usage"

    @endpoint("get_instance_usage", Scope.USAGE_READ, query=UsageQuery, returns=UsageOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """Read the usage of an instance.

        A byte counts when the leader accepted it (produce) or when it was written to the socket (consume), as
        record-batch bytes; refused produces and empty answers are free. Steps begin on UTC minutes, hours and days.
        """
        instance = access.instance(self.actor, instance_id)
        start, end, step = self.query["start"], self.query["end"], self.query["step"]
        group_by = [self.query["group_by"]] if "group_by" in self.query else []
        rows = metered.usage_rows(instance.pk, start=start, end=end, step=step, group_by=group_by)

        def sort_key(row: dict[str, Any]) -> str:
            return "|".join([row["start"].isoformat(), row["direction"], *(row[name] for name in group_by)])

        result, token = pages.page_of_items(rows, key=sort_key, **self._page_parameters())
        totals = metered.usage_totals(instance.pk, start=start, end=end)
        return self.one(
            {
                "start": start,
                "end": end,
                "step": step,
                "totals": totals,
                "complete_until": selectors.complete_until(instance.pk),
                "items": result,
                "next_page_token": token,
            },
            UsageOut,
        )


def _currency_of(actor: Actor) -> str:
    """Returns the tenant's currency; without a tenant the default currency of new tenants."""
    return (actor.tenant or Tenant()).currency


def _require_at_most(name: str, requested: int, maximum: int, plan: Plan) -> None:
    if requested > maximum:
        raise Invalid(
            f"Plan {plan.code} goes up to {maximum}.",
            errors=[FieldError(parameter=name, detail=f"At most {maximum} in this plan.", code="too_large")],
        )

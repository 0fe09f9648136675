"""REST resources of budgets (`/budgets`) and their alerts (`/alerts`)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing import access
from billing.api.serializers import Money
from billing.budgets import services
from billing.models import Budget
from billing.models.budgets import NAME_CHARS_MAX, SMALLEST
from notifications import access as notifications_access
from notifications.models import BudgetAlert
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.api.strict import StrictSerializer, Text
from tenants.choices import Scope


class BudgetOut(serializers.ModelSerializer[Budget]):
    """Monthly amount (UTC) before tax, for one instance or, if `instance_id` is empty, for all."""

    amount = Money()

    class Meta:
        model = Budget
        fields = ("id", "name", "amount", "instance_id", "created_at")


@extend_schema_field({"type": "string", "format": "decimal", "pattern": r"^(?=.*[1-9])\d{0,10}(?:\.\d{0,3})?$"})
class BudgetAmount(serializers.DecimalField):
    """Decimal above zero. OpenAPI describes decimals as strings, so that a pattern excludes zero."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(13, 3, min_value=SMALLEST, **kwargs)


class BudgetIn(StrictSerializer):
    name = Text(trim_whitespace=True, min_length=1, max_length=NAME_CHARS_MAX)
    amount = BudgetAmount(help_text="In the tenant's currency.")
    instance_id = Text(trim_whitespace=True, max_length=16, required=False, default="", allow_blank=True)


class BudgetChange(StrictSerializer):
    name = Text(trim_whitespace=True, min_length=1, max_length=NAME_CHARS_MAX, required=False)
    amount = BudgetAmount(required=False)


class AlertOut(serializers.ModelSerializer[BudgetAlert]):
    """Alert: a threshold of a budget was passed. `mark` is a percentage; 0 means that the forecast exceeds
    the budget.
    """

    amount = Money()
    spent = Money()
    forecast = Money()

    class Meta:
        model = BudgetAlert
        fields = (
            "id", "budget_id", "budget_name", "instance_id", "month", "mark", "amount", "spent", "forecast", "at",
            "sent_to",
        )  # fmt: skip


class BudgetCollection(ApiView):
    tag = "Billing"

    @endpoint("list_budgets", Scope.BILLING_READ, page_item=BudgetOut)
    def get(self, request: Request) -> Response:
        """List budgets."""
        return self.page(access.budgets_of(self.tenant), BudgetOut, order=("created_at", "id"))

    @endpoint("create_budget", Scope.BILLING_WRITE, body=BudgetIn, returns=BudgetOut, status=201, errors=(409, 422))
    def post(self, request: Request) -> Response:
        """Create a budget.

        Owners, admins and finance get a mail when 50, 80 and 100 % of it are spent in a month, and when the forecast
        exceeds it. A budget does not stop anything.
        """
        budget = services.create_budget(acting=self.actor, **self.body)
        return self.one(budget, BudgetOut, status=201, location=f"{API_ROOT}/budgets/{budget.pk}")


class BudgetDetail(ApiView):
    tag = "Billing"

    @endpoint("get_budget", Scope.BILLING_READ, returns=BudgetOut)
    def get(self, request: Request, budget_id: str) -> Response:
        """Read a budget."""
        return self.one(access.budget(self.actor, budget_id), BudgetOut)

    @endpoint(
        "change_budget",
        Scope.BILLING_WRITE,
        body=BudgetChange,
        returns=BudgetOut,
        requires_if_match=True,
        errors=(409,),
    )
    def patch(self, request: Request, budget_id: str) -> Response:
        """Change a budget's name or amount. A new amount resets its alerts of the month."""
        budget = access.budget(self.actor, budget_id, lock=True)
        self.require_match(budget)
        return self.one(services.change_budget(acting=self.actor, budget=budget, changes=self.body), BudgetOut)

    @endpoint("delete_budget", Scope.BILLING_WRITE, status=204, requires_if_match=True)
    def delete(self, request: Request, budget_id: str) -> Response:
        """Delete a budget. Its alerts stay."""
        budget = access.budget(self.actor, budget_id, lock=True)
        self.require_match(budget)
        services.delete_budget(acting=self.actor, budget=budget)
        return self.nothing()


class AlertCollection(ApiView):
    tag = "Billing"

    @endpoint("list_alerts", Scope.BILLING_READ, page_item=AlertOut)
    def get(self, request: Request) -> Response:
        """List alerts about budgets, oldest first."""
        return self.page(notifications_access.budget_alerts_of(self.tenant), AlertOut, order=("at", "id"))

"""Decision which thresholds of a budget were passed: pure. Each is reported once a month."""

from __future__ import annotations

from collections.abc import Set
from decimal import Decimal

# Percentages of the budget.
MARKS = (50, 80, 100)
# Pseudo threshold: the month is forecast to exceed the budget.
FORECAST = 0
HUNDRED = Decimal(100)


def marks_passed(budget: Decimal, spent: Decimal, forecast: Decimal, said: Set[int]) -> list[int]:
    """Returns thresholds that were not reported yet, lowest first. A forecast is reported only before the budget is
    spent.
    """
    result = [mark for mark in MARKS if mark not in said and spent * HUNDRED >= budget * mark]
    exceeds = forecast > budget and spent < budget
    return [*result, FORECAST] if exceeds and FORECAST not in said else result

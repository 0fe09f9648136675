"""Which marks of a budget are passed: pure. Each is said once in a month, the highest of several at once."""

from __future__ import annotations

from collections.abc import Set
from decimal import Decimal

# Percent of the budget that is spent.
MARKS = (50, 80, 100)
# The month will exceed the budget, if everything goes on as it is.
FORECAST = 0
HUNDRED = Decimal(100)


def marks_passed(budget: Decimal, spent: Decimal, forecast: Decimal, said: Set[int]) -> list[int]:
    """Marks that were not said yet, lowest first. A forecast is said only as long as the budget itself lasts."""
    result = [mark for mark in MARKS if mark not in said and spent * HUNDRED >= budget * mark]
    exceeds = forecast > budget and spent < budget
    return [*result, FORECAST] if exceeds and FORECAST not in said else result

"""The tables of billing, one module for each kind of fact."""

from billing.models.plans import Plan, Price
from billing.models.usage import NEVER, Direction, UsageCounter, UsageMinute, UsageOffset

__all__ = ["NEVER", "Direction", "Plan", "Price", "UsageCounter", "UsageMinute", "UsageOffset"]

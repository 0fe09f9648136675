"""Usual durations of the steps of creating an instance, measured on the latest creations."""

from __future__ import annotations

from statistics import median

from django.core.cache import cache

from instances.choices import OperationState, OperationType
from instances.models import Operation

OPERATIONS_SAMPLED = 50
CACHE_S = 60


def step_durations_ms() -> dict[str, int]:
    """Returns the median duration of each step over the latest creations of the installation, by step name; empty at
    first.
    """
    return cache.get_or_set("instances.usual_times_ms", _measure, CACHE_S) or {}


def _measure() -> dict[str, int]:
    rows = Operation.objects.filter(type=OperationType.CREATE, state=OperationState.SUCCEEDED)
    durations_by_step: dict[str, list[int]] = {}
    for steps in rows.order_by("-created_at").values_list("steps", flat=True)[:OPERATIONS_SAMPLED]:
        before_ms = 0
        for step in steps:
            at_ms = step["at_ms"] if step["at_ms"] is not None else before_ms
            durations_by_step.setdefault(step["name"], []).append(max(0, at_ms - before_ms))
            before_ms = max(before_ms, at_ms)
    return {name: round(median(durations_ms)) for name, durations_ms in durations_by_step.items()}

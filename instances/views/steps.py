"""An operation as the stepper shows it: six lines with what happened, when, and what is going on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from instances.choices import OperationState, Step, StepState
from instances.models import Operation

MS_PER_S = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """`state` is done, now, broken or waiting; `took` is the time since the request, or how far it got."""

    label: str
    state: str
    took: str
    fact: str


def elapsed_s(operation: Operation) -> float:
    """Seconds from the request to its end, or up to this moment."""
    end = operation.finished_at or timezone.now()
    return max(0.0, (end - operation.created_at).total_seconds())


def steps_of(operation: Operation) -> list[ShownStep]:
    """Every step; the first that is not done is the one going on while the operation is open."""
    shown: list[ShownStep] = []
    has_current = not operation.is_open
    for step in operation.steps:
        state = {StepState.DONE: "done", StepState.FAILED: "broken"}.get(step["state"], "waiting")
        if state == "waiting" and not has_current:
            state, has_current = "now", True
        shown.append(ShownStep(label=_label(step), state=state, took=_took(step, state), fact=_fact(step, state)))
    return shown


def has_failed(operation: Operation) -> bool:
    return operation.state == OperationState.FAILED


def _label(step: dict[str, Any]) -> str:
    return str(Step(step["name"]).label) if step["name"] in Step.values else str(step["name"])


def _took(step: dict[str, Any], state: str) -> str:
    data = step.get("data") or {}
    if state == "now" and "open" in data and "of" in data:
        return _("%(n)s of %(m)s") % {"n": data["open"], "m": data["of"]}
    return "" if step["at_ms"] is None or state == "waiting" else f"{step['at_ms']:,} ms"


def _fact(step: dict[str, Any], state: str) -> str:
    if step["fact"]:
        return _(step["fact"])
    if state in ("now", "waiting") and step["name"] == Step.FIRST_MESSAGE:
        return _("A probe produces and reads one record as a real client")
    return ""

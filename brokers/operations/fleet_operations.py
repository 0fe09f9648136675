"""Rows of long-running operations on clusters and their steps. `forming` and `retiring` perform the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from brokers.choices import FLEET_STEPS_OF, FleetOperationType, FleetStep
from brokers.models import Cluster, FleetOperation
from instances.choices import OperationState, StepState
from tenants.actors import Actor
from tenants.message_field import entries

OPEN_STATES = (OperationState.PENDING, OperationState.RUNNING)
FACT_CHARS_MAX = 500


def begin(acting: Actor, cluster: Cluster, type_: FleetOperationType, **data: Any) -> FleetOperation:
    """Creates an operation whose first step, the acceptance, is complete."""
    steps = [_new_step(step) for step in FLEET_STEPS_OF[type_]]
    steps[0] |= {
        "state": StepState.DONE.value, "at_ms": 0, "fact": f"Accepted from {acting.label}"[:FACT_CHARS_MAX],
        "data": data,
    }  # fmt: skip
    return FleetOperation.objects.create(
        cluster=cluster, type=type_, steps=steps, asked_by=acting.label, request_id=acting.request_id or ""
    )


def open_operation(cluster: Cluster) -> FleetOperation | None:
    """Returns the unfinished operation of a cluster, or None."""
    return FleetOperation.objects.filter(cluster=cluster, state__in=OPEN_STATES).first()


def is_done(operation: FleetOperation, step: FleetStep) -> bool:
    """True if the step is complete."""
    return any(row["name"] == step and row["state"] == StepState.DONE for row in operation.steps)


def data_of(operation: FleetOperation, step: FleetStep) -> Mapping[str, Any]:
    """Returns the data stored with a step."""
    return next((row["data"] for row in operation.steps if row["name"] == step), {})


def mark_waiting(operation: FleetOperation, step: FleetStep, fact: str, **data: Any) -> None:
    """Marks a step as running, with the fact that it waits for."""
    _update_step(operation, step, StepState.RUNNING, fact, data)


def mark_done(operation: FleetOperation, step: FleetStep, fact: str, **data: Any) -> None:
    """Marks a step as complete."""
    _update_step(operation, step, StepState.DONE, fact, data)


def record_failure_reason(operation: FleetOperation, detail: str) -> None:
    """Stores the reason why the current step waits, if something does not answer."""
    step = next((row for row in operation.steps if row["state"] != StepState.DONE), None)
    if step is not None:
        mark_waiting(operation, FleetStep(step["name"]), detail)


def succeed(operation: FleetOperation) -> bool:
    """Completes the operation; False if it was finished concurrently."""
    operation.state, operation.finished_at = OperationState.SUCCEEDED, timezone.now()
    return _save_if_open(operation, "steps", "state", "finished_at")


def fail(operation: FleetOperation, code: str, detail: str) -> None:
    """Fails the operation at the current step."""
    step = next((row for row in operation.steps if row["state"] != StepState.DONE), None)
    if step is not None:
        fact = entries("fact", detail, FACT_CHARS_MAX)
        step |= {"state": StepState.FAILED.value, "at_ms": _at_ms(operation), **fact}
    operation.error = {"code": code, "detail": detail}
    operation.state, operation.finished_at = OperationState.FAILED, timezone.now()
    _save_if_open(operation, "steps", "state", "error", "finished_at")


def _new_step(step: FleetStep) -> dict[str, Any]:
    return {"name": step.value, "state": StepState.PENDING.value, "at_ms": None, "fact": "", "data": {}}


def _update_step(
    operation: FleetOperation, step: FleetStep, state: StepState, fact: str, data: Mapping[str, Any]
) -> None:
    step_document = next(step_document for step_document in operation.steps if step_document["name"] == step)
    changes = {"state": state.value, **entries("fact", fact, FACT_CHARS_MAX), "data": {**step_document["data"], **data}}
    if step_document["state"] == StepState.DONE or all(
        step_document.get(key) == value for key, value in changes.items()
    ):
        return
    step_document |= changes | {"at_ms": _at_ms(operation) if state is StepState.DONE else None}
    operation.state = OperationState.RUNNING
    _save_if_open(operation, "steps", "state")


def _save_if_open(operation: FleetOperation, *fields: str) -> bool:
    """Saves fields of the operation. Returns False and saves nothing if it was finished concurrently."""
    values = {name: getattr(operation, name) for name in fields}
    return bool(FleetOperation.objects.filter(pk=operation.pk, state__in=OPEN_STATES).update(**values))


def _at_ms(operation: FleetOperation) -> int:
    return max(0, round((timezone.now() - operation.created_at).total_seconds() * 1000))

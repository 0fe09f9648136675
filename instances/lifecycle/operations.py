"""Operations: begun by services, continued by the reconciler, completed when their generation is confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from instances.choices import STEPS_OF, OperationState, OperationType, Step, StepState
from instances.models import Instance, Operation
from tenants.actors import Actor
from tenants.message_field import entries

OPEN_STATES = (OperationState.PENDING, OperationState.RUNNING)


def begin(acting: Actor, instance: Instance, type_: OperationType, *, fact: str = "", **data: Any) -> Operation:
    """Creates an operation whose first step, the acceptance, is complete. It waits for the instance's generation."""
    instant = timezone.now()
    steps = [_pending_step(step) for step in STEPS_OF[type_]]
    message = fact or f"Accepted from {acting.label}"
    steps[0] |= {"state": StepState.DONE.value, "at_ms": 0, "fact": message, "data": data}
    return Operation.objects.create(
        tenant=instance.tenant,
        instance=instance,
        type=type_,
        steps=steps,
        generation=instance.generation,
        plan=instance.plan,
        bandwidth_mb_s=instance.bandwidth_mb_s,
        storage_gb=instance.storage_gb,
        is_suspended=instance.is_suspended,
        asked_by=acting.label,
        request_id=acting.request_id or "",
        created_at=instant,
    )


def open_operations(instance: Instance) -> list[Operation]:
    """Returns the unfinished operations, oldest first."""
    return list(Operation.objects.filter(instance=instance, state__in=OPEN_STATES).order_by("created_at", "id"))


def start_step(operation: Operation, step: Step, data: Mapping[str, Any] | None = None) -> None:
    """Marks a step as running; steps that the operation does not have are ignored."""
    _update_step(operation, step, StepState.RUNNING, "", data or {})


def forecast_step(operation: Operation, step: Step, fact: str, data: Mapping[str, Any]) -> None:
    """Stores the forecast of a step that has not begun, in a dry run."""
    for row in operation.steps:
        if row["name"] == step.value:
            row |= {**entries("fact", fact), "data": dict(data)}
    _write(operation, "steps")


def mark_step_waiting(operation: Operation, step: Step, fact: str, data: Mapping[str, Any] | None = None) -> None:
    """Marks a step as waiting for something that may take long; writes only changes."""
    current = next((row for row in operation.steps if row["name"] == step.value), None)
    if current is not None and (current["fact"] != fact or current["state"] != StepState.RUNNING):
        _update_step(operation, step, StepState.RUNNING, fact, data or {})


def finish_step(operation: Operation, step: Step, fact: str, data: Mapping[str, Any] | None = None) -> None:
    """Marks a step as complete, with its fact; a completed step keeps its time."""
    _update_step(operation, step, StepState.DONE, fact, data or {})


def succeed(operation: Operation) -> None:
    """Completes the operation. Steps that were not reported (an earlier run did them) count as complete."""
    at_ms = _at_ms(operation)
    for step in operation.steps:
        if step["state"] != StepState.DONE:
            step |= {"state": StepState.DONE.value, "at_ms": at_ms}
    _finish(operation, OperationState.SUCCEEDED)


def fail(operation: Operation, code: str, detail: str, data: Mapping[str, Any] | None = None) -> None:
    """Fails the operation at the current step; `code` is stable, `detail` is for people."""
    for step in operation.steps:
        if step["state"] != StepState.DONE:
            step |= {"state": StepState.FAILED.value, "at_ms": _at_ms(operation), **entries("fact", detail)}
            break
    operation.error = {"code": code, "detail": detail, **({"data": dict(data)} if data else {})}
    _finish(operation, OperationState.FAILED)


def supersede(instance: Instance, code: str, detail: str) -> None:
    """Fails all open operations because a later request supersedes them."""
    for operation in open_operations(instance):
        fail(operation, code, detail)


def _pending_step(step: Step) -> dict[str, Any]:
    return {"name": step.value, "state": StepState.PENDING.value, "at_ms": None, "fact": "", "data": {}}


def _update_step(operation: Operation, step: Step, state: StepState, fact: str, data: Mapping[str, Any]) -> None:
    for row in operation.steps:
        if row["name"] == step.value and row["state"] != StepState.DONE:
            at_ms = _at_ms(operation) if state is StepState.DONE else None
            row |= {"state": state.value, "at_ms": at_ms, **entries("fact", fact), "data": dict(data)}
            operation.state = OperationState.RUNNING
            _write(operation, "steps", "state")


def _finish(operation: Operation, state: OperationState) -> None:
    operation.state = state
    operation.finished_at = timezone.now()
    _write(operation, "steps", "state", "error", "finished_at")


def _write(operation: Operation, *fields: str) -> None:
    """Writes the fields if the operation is still open, so that a concurrent end is not overwritten."""
    values = {name: getattr(operation, name) for name in fields}
    Operation.objects.filter(pk=operation.pk, state__in=OPEN_STATES).update(**values)


def _at_ms(operation: Operation, instant: datetime | None = None) -> int:
    return max(0, round(((instant or timezone.now()) - operation.created_at).total_seconds() * 1000))

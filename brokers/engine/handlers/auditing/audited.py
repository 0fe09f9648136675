"""Calls that administer an instance are written to the audit log before they are answered.

Only calls of tenants' listeners are: nobody moves replicas or leadership there. What the control plane does through the
internal listener has its row already, and a call that another broker forwards is recorded by that one.
"""

from __future__ import annotations

from typing import Any

import structlog

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.auditing import groups
from brokers.engine.handlers.auditing.changes import Asked, Change, outcome_of
from brokers.engine.handlers.context import Call

log = structlog.get_logger(__name__)


def begin(call: Call) -> bool:
    """Prepares a call for the audit log. Returns False for calls of the cluster itself, which are not written there."""
    if call.view.internal or call.view.instance is None:
        return False
    call.noted = {}
    return True


def record(call: Call, request: Any, response: Any, image: ClusterImage) -> None:
    """Writes to the audit log what became of a request; no response: its connection ended before. `image` is that of
    the beginning. A failure is logged and never takes back an answer.
    """
    instance_id, describe = call.view.instance_id, call.api.audit
    assert instance_id is not None, "checked by `begin`"
    assert describe is not None, "only audited calls are recorded"
    try:
        change = describe(Asked(call, request, response, image))
        if change is not None:
            _write(call, instance_id, change, is_answered=response is not None)
    except Exception:
        log.exception("audit_event_failed", instance_id=instance_id, api_key=call.api_key)


def _write(call: Call, instance_id: str, change: Change, *, is_answered: bool) -> None:
    outcome = outcome_of(change)
    source, trail = call.source, call.services.access.audit
    if outcome.items and change.action == groups.COMMITTED and is_answered:
        trail.committed(instance_id, source, outcome.items[0])
    elif outcome.items:
        trail.changed(instance_id, source, outcome.items, more=outcome.more, failed=outcome.failed)
    if outcome.denied:
        trail.denied(instance_id, source, change.action, change.kind, outcome.denied)

"""Writes calls that administer an instance to the audit log before they are answered.

Only calls on tenant listeners are recorded: replicas and leadership are not moved there. Changes by the control plane
over the internal listener have an audit row already, and a forwarded call is recorded by the broker that forwards it.
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
    """Prepares a call for the audit log. Returns False for internal calls, which are not recorded."""
    if call.view.internal or call.view.instance is None:
        return False
    call.noted = {}
    return True


def record(call: Call, request: Any, response: Any, image: ClusterImage) -> None:
    """Records the outcome of a request in the audit log. `response` is None if the connection closed before; `image` is
    the metadata from before the request. A failure is logged and never takes back a response.
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

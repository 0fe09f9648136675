"""Which calls administer an instance, and how each is told to the audit log before it is answered.

Calls of tenants' ports alone, on which nobody moves replicas or leadership. What the control plane does through the
internal listener has its row already, and a call that another broker passes on is told by that one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Final

import structlog

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.auditing import access, groups, topics
from brokers.engine.handlers.auditing.changes import Asked, Change, Describe, outcome_of
from brokers.engine.handlers.context import Call, Handler
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import MalformedRequest

log = structlog.get_logger(__name__)

AUDITED: Final[Mapping[int, Describe]] = {
    int(ApiKey.CREATE_TOPICS): topics.created,
    int(ApiKey.DELETE_TOPICS): topics.deleted,
    int(ApiKey.CREATE_PARTITIONS): topics.grown,
    int(ApiKey.ALTER_CONFIGS): topics.configured,
    int(ApiKey.INCREMENTAL_ALTER_CONFIGS): topics.configured,
    int(ApiKey.DELETE_RECORDS): topics.records_deleted,
    int(ApiKey.OFFSET_COMMIT): groups.offsets_committed,
    int(ApiKey.OFFSET_DELETE): groups.offsets_deleted,
    int(ApiKey.DELETE_GROUPS): groups.deleted,
    int(ApiKey.ALTER_CLIENT_QUOTAS): access.quotas_altered,
    int(ApiKey.ALTER_USER_SCRAM_CREDENTIALS): access.users_altered,
    int(ApiKey.CREATE_ACLS): access.acls_created,
    int(ApiKey.DELETE_ACLS): access.acls_deleted,
}


def with_audit(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The same handlers, where calls that administer are told to the audit log."""
    return {**handlers, **{key: _audited(handlers[key], describe) for key, describe in AUDITED.items()}}


def _audited(handler: Handler, describe: Describe) -> Handler:
    def handle(call: Call, request: Any) -> Any:
        view = call.view
        if view.internal or view.instance is None:
            return handler(call, request)
        call.noted = {}
        image = view.image
        answer = handler(call, request)
        if hasattr(answer, "__await__"):
            return _audited_later(answer, describe, call, request, image)
        _tell(describe, Asked(call, request, answer, image))
        return answer

    return handle


async def _audited_later(
    answer: Awaitable[Any], describe: Describe, call: Call, request: Any, image: ClusterImage
) -> Any:
    try:
        response = await answer
    except MalformedRequest:
        raise  # before anything was done
    except BaseException:
        # Who hangs up ends the work of its request, and may have changed something by then.
        _tell(describe, Asked(call, request, None, image))
        raise
    _tell(describe, Asked(call, request, response, image))
    return response


def _tell(describe: Describe, asked: Asked) -> None:
    """A mistake in here must not take back an answer: it is said, and the request is told of without details."""
    call = asked.call
    instance_id = call.view.instance_id
    assert instance_id is not None, "asked before"
    try:
        change = describe(asked)
        if change is not None:
            _write(call, instance_id, change, is_answered=asked.response is not None)
    except Exception:
        log.exception("audit_event_failed", instance_id=instance_id, api_key=call.api_key)


def _write(call: Call, instance_id: str, change: Change, *, is_answered: bool) -> None:
    outcome = outcome_of(change)
    source, trail = call.source, call.engine.audit
    if outcome.items and change.action == groups.COMMITTED and is_answered:
        trail.committed(instance_id, source, outcome.items[0])
    elif outcome.items:
        trail.changed(instance_id, source, outcome.items, more=outcome.more, failed=outcome.failed)
    if outcome.denied:
        trail.denied(instance_id, source, change.action, change.kind, outcome.denied)

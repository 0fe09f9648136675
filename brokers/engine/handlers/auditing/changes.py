"""Changes that one request of a client makes, and their outcomes, which are written to the audit log before the request
is answered.

Only calls on tenant listeners are recorded, which cannot move replicas or leaders. Changes by the control plane over
the internal listener have an audit row already, and a forwarded call is recorded by the broker that forwards it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

import structlog

from brokers.contract.audit import DONE, ITEMS_MAX, UNKNOWN, AuditItem
from brokers.engine.cluster.image import ClusterImage, InstanceImage, TopicImage
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.served_api import DENIALS
from brokers.engine.protocol.errors import ErrorCode

# Action of a commit by a client that is no member of the group; commits of members are not recorded.
COMMITTED: Final = "group.offsets_committed"
# Number of items of a request that are described; further ones are only counted.
DESCRIBED_ITEMS_MAX: Final = 2_000
# Maximum number of partitions named in one value.
PARTITIONS_MAX: Final = 20
_DENIED: Final = frozenset(DENIALS.values())
_UNKNOWN: Final = frozenset((int(ErrorCode.UNKNOWN_SERVER_ERROR), int(ErrorCode.REQUEST_TIMED_OUT)))
log = structlog.get_logger(__name__)


class AuditedRequest(NamedTuple):
    """A request with its response, None if it ended without one, and the metadata from before it."""

    context: RequestContext
    request: Any
    response: Any
    image: ClusterImage

    @property
    def instance(self) -> InstanceImage | None:
        return self.image.instances.get(self.context.view.instance_id or "")

    @property
    def instance_now(self) -> InstanceImage | None:
        return self.context.services.metadata.current.image.instances.get(self.context.view.instance_id or "")

    def topic(self, name: str) -> TopicImage | None:
        """Returns the topic from before the request."""
        return None if self.instance is None else self.instance.topic(name)

    def topic_now(self, name: str) -> TopicImage | None:
        return None if self.instance_now is None else self.instance_now.topic(name)


class ItemResult(NamedTuple):
    """Outcome of one item of a request. `item` describes the change; it returns None if nothing was changed."""

    error: int
    name: str
    item: Callable[[], AuditItem | None]


class Change(NamedTuple):
    """One kind of action on `total` items. `results` are their outcomes, which may be generated lazily."""

    action: str
    kind: str
    total: int
    results: Iterable[ItemResult]


class ChangeOutcome(NamedTuple):
    """Outcome of a request: `items` to report, `more` changed items that are only counted, `failed` items, and the
    names of those that its user has no right to.
    """

    items: list[AuditItem]
    more: int
    failed: int
    denied: list[str]


def outcome_of(change: Change) -> ChangeOutcome:
    """Returns the outcome of a request from its first `DESCRIBED_ITEMS_MAX` results; further items are counted."""
    items: list[AuditItem] = []
    denied: list[str] = []
    more = failed = seen = 0
    for result in islice(change.results, DESCRIBED_ITEMS_MAX):
        seen += 1
        if result.error in _DENIED:
            denied.append(result.name)
            failed += 1
        elif result.error and result.error not in _UNKNOWN:
            failed += 1
        elif len(items) >= ITEMS_MAX:
            more += 1
        else:
            item = result.item()
            if item is not None:
                items.append(replace(item, outcome=UNKNOWN) if result.error else item)
    return ChangeOutcome(items, more + max(change.total - seen, 0), failed, denied)


def error_of(result: Any) -> int:
    """Returns the error code of a result; the outcome of a missing result is unknown."""
    return int(ErrorCode.UNKNOWN_SERVER_ERROR) if result is None else result.error_code


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the entries of both mappings that differ."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {n: before[n] for n in names if n in before}, {n: after[n] for n in names if n in after}


def first_error(results: Iterable[Any]) -> int:
    """Returns one error code for results reported together: `DONE` if any succeeded, else the first error."""
    error = DONE
    for number, result in enumerate(islice(results, DESCRIBED_ITEMS_MAX)):
        if not result.error_code:
            return DONE
        if not number:
            error = result.error_code
    return error


def begin(context: RequestContext) -> bool:
    """Prepares a call for the audit log. Returns False for internal calls, which are not recorded."""
    if context.view.internal or context.view.instance is None:
        return False
    context.setting_changes = {}
    return True


def record(context: RequestContext, request: Any, response: Any, image: ClusterImage) -> None:
    """Records the outcome of a request in the audit log. `response` is None if the request ended without one; `image`
    is the metadata from before the request. A failure is logged, and does not affect the response.
    """
    instance_id, describe = context.view.instance_id, context.api.audit
    assert instance_id is not None, "checked by `begin`"
    assert describe is not None, "only audited calls are recorded"
    try:
        change = describe(AuditedRequest(context, request, response, image))
        if change is not None:
            _write(context, instance_id, change, is_answered=response is not None)
    except Exception:
        log.exception("audit_event_failed", instance_id=instance_id, api_key=context.api_key)


def _write(context: RequestContext, instance_id: str, change: Change, *, is_answered: bool) -> None:
    outcome = outcome_of(change)
    source, trail = context.source, context.services.access.audit
    if outcome.items and change.action == COMMITTED and is_answered:
        trail.report_commit(instance_id, source, outcome.items[0])
    elif outcome.items:
        trail.report_changes(instance_id, source, outcome.items, more=outcome.more, failed=outcome.failed)
    if outcome.denied:
        trail.report_denial(instance_id, source, change.action, change.kind, outcome.denied)

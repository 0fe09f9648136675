"""Changes that one request of a client asked for, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from brokers.contract.audit import DONE, ITEMS_MAX, UNKNOWN, AuditItem
from brokers.engine.cluster.image import ClusterImage, InstanceImage, TopicImage
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.required_rights import DENIALS
from brokers.engine.protocol.errors import ErrorCode

# Number of items of a request that are described; further ones are only counted.
LINES_MAX: Final = 2_000
# Maximum number of partitions named in one value.
PARTITIONS_MAX: Final = 20
_DENIED: Final = frozenset(DENIALS.values())
_UNKNOWN: Final = frozenset((int(ErrorCode.UNKNOWN_SERVER_ERROR), int(ErrorCode.REQUEST_TIMED_OUT)))

Values = Mapping[str, Any] | None


class Asked(NamedTuple):
    """A request with its response, None if the connection closed before. `image` is the metadata from before it."""

    call: Call
    request: Any
    response: Any
    image: ClusterImage

    @property
    def instance(self) -> InstanceImage | None:
        return self.image.instances.get(self.call.view.instance_id or "")

    @property
    def instance_now(self) -> InstanceImage | None:
        return self.call.services.metadata.current.image.instances.get(self.call.view.instance_id or "")

    def topic(self, name: str) -> TopicImage | None:
        """Returns the topic from before the request."""
        return None if self.instance is None else self.instance.topic(name)

    def topic_now(self, name: str) -> TopicImage | None:
        return None if self.instance_now is None else self.instance_now.topic(name)


class ItemResult(NamedTuple):
    """Outcome of one item: its error code, and its description. `item` returns None if nothing was changed."""

    error: int
    name: str
    item: Callable[[], AuditItem | None]


class Change(NamedTuple):
    """One kind of action on `total` items; `lines` may be generated lazily."""

    action: str
    kind: str
    total: int
    lines: Iterable[ItemResult]


class Outcome(NamedTuple):
    """Outcome of a request: `items` to report, `more` changed items that are only counted, `failed` items, and the
    names of those that its user has no right to.
    """

    items: list[AuditItem]
    more: int
    failed: int
    denied: list[str]


# Describes the change of a request; returns None if the request administers nothing.
Describe = Callable[[Asked], Change | None]


def outcome_of(change: Change) -> Outcome:
    items: list[AuditItem] = []
    denied: list[str] = []
    more = failed = seen = 0
    for result in islice(change.lines, LINES_MAX):
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
                items.append(item if not result.error else _unsure(item))
    return Outcome(items, more + max(change.total - seen, 0), failed, denied)


def _unsure(item: AuditItem) -> AuditItem:
    return AuditItem(
        action=item.action, kind=item.kind, name=item.name, outcome=UNKNOWN, before=item.before, after=item.after
    )


def error_of(result: Any) -> int:
    """Returns the error code of a result; the outcome of a missing result is unknown."""
    return int(ErrorCode.UNKNOWN_SERVER_ERROR) if result is None else result.error_code


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the entries of both mappings that differ."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {n: before[n] for n in names if n in before}, {n: after[n] for n in names if n in after}


def first_error(results: Iterable[Any]) -> int:
    """Returns the error code of results that are reported as one: done if any of them is."""
    error = DONE
    for number, result in enumerate(islice(results, LINES_MAX)):
        if not result.error_code:
            return DONE
        if not number:
            error = result.error_code
    return error

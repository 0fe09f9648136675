"""What one request of a client asked to be changed, and what became of each thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from brokers.contract.audit import DONE, ITEMS_MAX, UNKNOWN, AuditItem
from brokers.engine.cluster.image import ClusterImage, InstanceImage, TopicImage
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.required_rights import DENIALS
from brokers.engine.protocol.errors import ErrorCode

# Lines of a request that are looked at; more than that are only counted.
LINES_MAX: Final = 2_000
# Names of partitions in one value.
PARTITIONS_MAX: Final = 20
_DENIED: Final = frozenset(DENIALS.values())
_UNKNOWN: Final = frozenset((int(ErrorCode.UNKNOWN_SERVER_ERROR), int(ErrorCode.REQUEST_TIMED_OUT)))

Values = Mapping[str, Any] | None


class Asked(NamedTuple):
    """A request, and its response; None: the connection ended before it. `image` is that of the beginning."""

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
        """As it was."""
        return None if self.instance is None else self.instance.topic(name)

    def topic_now(self, name: str) -> TopicImage | None:
        return None if self.instance_now is None else self.instance_now.topic(name)


class ItemResult(NamedTuple):
    """One thing: how it was answered, and what to say of it. `item` answers None where nothing was changed."""

    error: int
    name: str
    item: Callable[[], AuditItem | None]


class Change(NamedTuple):
    """`total` lines of one kind of action; `lines` may be made while they are looked at."""

    action: str
    kind: str
    total: int
    lines: Iterable[ItemResult]


class Outcome(NamedTuple):
    """What a request came to: `items` to be told, `more` that changed as well, `failed` that were refused, and the
    names of those that its user has no right to.
    """

    items: list[AuditItem]
    more: int
    failed: int
    denied: list[str]


# None: this request administers nothing.
Describe = Callable[[Asked], Change | None]


def outcome_of(change: Change) -> Outcome:
    items: list[AuditItem] = []
    denied: list[str] = []
    more = failed = seen = 0
    for line in islice(change.lines, LINES_MAX):
        seen += 1
        if line.error in _DENIED:
            denied.append(line.name)
            failed += 1
        elif line.error and line.error not in _UNKNOWN:
            failed += 1
        elif len(items) >= ITEMS_MAX:
            more += 1
        else:
            item = line.item()
            if item is not None:
                items.append(item if not line.error else _unsure(item))
    return Outcome(items, more + max(change.total - seen, 0), failed, denied)


def _unsure(item: AuditItem) -> AuditItem:
    return AuditItem(
        action=item.action, kind=item.kind, name=item.name, outcome=UNKNOWN, before=item.before, after=item.after
    )


def error_of(result: Any) -> int:
    """Of a line of a response; of one that never came nobody knows."""
    return int(ErrorCode.UNKNOWN_SERVER_ERROR) if result is None else result.error_code


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of both that differ."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {n: before[n] for n in names if n in before}, {n: after[n] for n in names if n in after}


def first_error(results: Iterable[Any]) -> int:
    """Of many lines that are told of as one: done where any of them is."""
    error = DONE
    for number, result in enumerate(islice(results, LINES_MAX)):
        if not result.error_code:
            return DONE
        if not number:
            error = result.error_code
    return error

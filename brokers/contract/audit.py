"""The audit event, a record of `__audit`: the changes that one request of a Kafka client made in an instance, or the
sum of several requests of one kind.

The client's broker writes it before the request is answered, and the control plane turns it into rows of the tenant's
audit log. All values that a client chooses freely are bounded here, and none is a secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

AUDIT_TOPIC: Final = "__audit"
VERSION: Final = 1

# Items that one event names; further ones are counted.
ITEMS_MAX: Final = 50
# Size of an event as it is written; items that do not fit are counted.
EVENT_BYTES_MAX: Final = 16 * 1024
# Bytes encoded for one event, including values that are then left out as too long: about 2 ms of work.
ENCODED_BYTES_MAX: Final = 2 * EVENT_BYTES_MAX
# Size of one item with its `before` and `after`; beyond, both are replaced by CUT.
ITEM_BYTES_MAX: Final = 4 * 1024
# Length of one string; the rest is replaced by CUT_MARK.
TEXT_CHARS_MAX: Final = 256
# Values of one item.
VALUES_MAX: Final = 50
CUT_MARK: Final = "…"
# Replaces values that were left out as too long.
CUT: Final[Mapping[str, Any]] = {"cut": True}

# Outcome of an item that was done.
DONE: Final = 0
# Outcome of an item that may have been done: the connection ended before the answer, or the request timed out.
UNKNOWN: Final = -1

# User of an event by a client that is not authenticated as a user of the instance.
NOBODY: Final = ""
# User and address of an event that sums up too many users or addresses to name.
SEVERAL: Final = "*"

SIGN_IN_FAILED: Final = "client.sign_in_failed"
SIGN_IN_REFUSED: Final = "client.sign_in_refused"
DENIED: Final = "client.denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditItem:
    """One item of an event and its outcome.

    `name` is the tenant's name of the item; `outcome` is `DONE`, `UNKNOWN` or Kafka's error code; `before` and `after`
    have the changed values.
    """

    action: str
    kind: str
    name: str
    outcome: int = DONE
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """An audit event about `requests` requests between `at_ms` and `until_ms` (wall time).

    `more` is the number of items that are not named, `failed` the number of items that were refused.
    """

    id: str
    broker_id: int
    instance_id: str
    at_ms: int
    until_ms: int
    user: str
    address: str
    client_id: str
    route: str
    items: tuple[AuditItem, ...]
    more: int = 0
    failed: int = 0
    requests: int = 1

    def to_json(self) -> bytes:
        """Encodes the event in about `EVENT_BYTES_MAX`, with the items that fit and the number of the others."""
        items: list[str] = []
        remaining_bytes, encoding_budget_bytes = EVENT_BYTES_MAX, ENCODED_BYTES_MAX
        for item in self.items[:ITEMS_MAX]:
            if encoding_budget_bytes < 0:
                break
            text, encoded_bytes = _encode_item(item)
            encoding_budget_bytes -= encoded_bytes
            remaining_bytes -= len(text) + 1
            if remaining_bytes < 0:
                break
            items.append(text)
        head = {
            "v": VERSION,
            "id": self.id,
            "broker": self.broker_id,
            "instance": self.instance_id,
            "at": self.at_ms,
            "until": self.until_ms,
            "user": cut(self.user),
            "address": self.address,
            "client": cut(self.client_id),
            "route": self.route,
            "more": self.more + len(self.items) - len(items),
            "failed": self.failed,
            "requests": self.requests,
        }
        return f'{json.dumps(head, separators=(",", ":"))[:-1]},"items":[{",".join(items)}]}}'.encode()

    @classmethod
    def from_json(cls, raw: bytes) -> AuditEvent:
        """Decodes an event. Fields of later versions are ignored.

        Raises:
            ValueError: the record is not an audit event, or has an incompatible version.
        """
        try:
            body = json.loads(raw)
            if body["v"] != VERSION:
                raise ValueError(f"audit event of unknown version {body['v']!r}")
            return cls(
                id=str(body["id"]),
                broker_id=int(body["broker"]),
                instance_id=str(body["instance"]),
                at_ms=int(body["at"]),
                until_ms=int(body["until"]),
                user=str(body["user"]),
                address=str(body["address"]),
                client_id=str(body["client"]),
                route=str(body["route"]),
                items=tuple(_parse_item(item) for item in body["items"]),
                more=int(body["more"]),
                failed=int(body["failed"]),
                requests=int(body["requests"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an audit event: {error!r}") from error


def cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + CUT_MARK


def cut_values(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns at most `VALUES_MAX` values, with long strings cut."""
    if values is None:
        return None
    result = {cut(name): _cut_value(value) for name, value in _first_values(values.items())}
    if len(values) > VALUES_MAX:
        result[CUT_MARK] = len(values) - VALUES_MAX
    return result


def _cut_value(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, Mapping):
        return cut_values(value)
    if isinstance(value, list | tuple):
        return [_cut_value(inner) for inner in _first_values(value)]
    return value


def _first_values(values: Iterable[Any]) -> list[Any]:
    return [value for value, _ in zip(values, range(VALUES_MAX), strict=False)]


def _encode_item(item: AuditItem) -> tuple[str, int]:
    """Returns the JSON of an item, and its length before values that are too long were left out."""
    body: dict[str, Any] = {"action": item.action, "kind": item.kind, "name": cut(item.name)}
    if item.outcome != DONE:
        body["outcome"] = item.outcome
    body_without_values = body
    for name, values in (("before", item.before), ("after", item.after)):
        if values is not None:
            body = {**body, name: cut_values(values)}
    text = json.dumps(body, separators=(",", ":"))
    if len(text) <= ITEM_BYTES_MAX:
        return text, len(text)
    cut_marks = {name: CUT for name in ("before", "after") if name in body}
    return json.dumps({**body_without_values, **cut_marks}, separators=(",", ":")), len(text)


def _parse_item(body: Mapping[str, Any]) -> AuditItem:
    return AuditItem(
        action=str(body["action"]),
        kind=str(body["kind"]),
        name=str(body["name"]),
        outcome=int(body.get("outcome", DONE)),
        before=_mapping_or_none(body.get("before")),
        after=_mapping_or_none(body.get("after")),
    )


def _mapping_or_none(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None

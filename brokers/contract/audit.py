"""The audit event: one record of `__audit` tells what one request of a Kafka client changed in an instance, or what
several of one kind came to.

Written by the broker the client spoke to, before the request is answered; read by the control plane, which makes rows
of the tenants' audit log of it. Whatever a client chose freely is bounded here, and nothing here is a secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

AUDIT_TOPIC: Final = "__audit"
VERSION: Final = 1

# Things that one event names; of more it says how many.
ITEMS_MAX: Final = 50
# Of an event as it is written: items that do not fit are counted.
EVENT_BYTES_MAX: Final = 16 * 1024
# Encoded for one event, with what is then left out as too long: about 2 ms of work.
ENCODED_BYTES_MAX: Final = 2 * EVENT_BYTES_MAX
# Of one item with what it was before and is after; beyond, both are left out, with a mark.
ITEM_BYTES_MAX: Final = 4 * 1024
# Of one text within: the rest is cut, with a mark.
TEXT_CHARS_MAX: Final = 256
# Of the values of one item.
VALUES_MAX: Final = 50
CUT_MARK: Final = "…"
# What stands for what was left out as too long.
CUT: Final[Mapping[str, Any]] = {"cut": True}

# An outcome of an item: done.
DONE: Final = 0
# Nobody knows whether it was done: the connection ended before the answer, or time was up.
UNKNOWN: Final = -1

# Stands for the user of whoever proved to be nobody that the instance has.
NOBODY: Final = ""
# Stands for users and addresses together, where there were too many to name.
SEVERAL: Final = "*"

SIGN_IN_FAILED: Final = "client.sign_in_failed"
SIGN_IN_REFUSED: Final = "client.sign_in_refused"
DENIED: Final = "client.denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditItem:
    """One thing and what became of it. `name` is the tenant's; `outcome` is `DONE`, `UNKNOWN` or Kafka's error code;
    `before` and `after` hold what changed.
    """

    action: str
    kind: str
    name: str
    outcome: int = DONE
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """`more` are things that are not named, `failed` those that were refused; `requests` is of how many requests it
    tells, from `at_ms` to `until_ms` (wall time).
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
        """At most about `EVENT_BYTES_MAX`: the items that fit, and how many do not."""
        items: list[str] = []
        left, work = EVENT_BYTES_MAX, ENCODED_BYTES_MAX
        for item in self.items[:ITEMS_MAX]:
            if work < 0:
                break
            text, encoded_bytes = _item_json(item)
            work -= encoded_bytes
            left -= len(text) + 1
            if left < 0:
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
        """Fields of later versions are ignored.

        Raises:
            ValueError: it is no event, or one of a version that says things otherwise.
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
                items=tuple(_item(item) for item in body["items"]),
                more=int(body["more"]),
                failed=int(body["failed"]),
                requests=int(body["requests"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an audit event: {error!r}") from error


def cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + CUT_MARK


def cut_values(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """At most `VALUES_MAX` of them, texts cut."""
    if values is None:
        return None
    result = {cut(name): _cut_value(value) for name, value in _first(values.items())}
    if len(values) > VALUES_MAX:
        result[CUT_MARK] = len(values) - VALUES_MAX
    return result


def _cut_value(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, Mapping):
        return cut_values(value)
    if isinstance(value, list | tuple):
        return [_cut_value(inner) for inner in _first(value)]
    return value


def _first(values: Iterable[Any]) -> list[Any]:
    return [value for value, _ in zip(values, range(VALUES_MAX), strict=False)]


def _item_json(item: AuditItem) -> tuple[str, int]:
    """The text, and how long it was before values that are too long were left out."""
    body: dict[str, Any] = {"action": item.action, "kind": item.kind, "name": cut(item.name)}
    if item.outcome != DONE:
        body["outcome"] = item.outcome
    bare = body
    for name, values in (("before", item.before), ("after", item.after)):
        if values is not None:
            body = {**body, name: cut_values(values)}
    text = json.dumps(body, separators=(",", ":"))
    if len(text) <= ITEM_BYTES_MAX:
        return text, len(text)
    marks = {name: CUT for name in ("before", "after") if name in body}
    return json.dumps({**bare, **marks}, separators=(",", ":")), len(text)


def _item(body: Mapping[str, Any]) -> AuditItem:
    return AuditItem(
        action=str(body["action"]),
        kind=str(body["kind"]),
        name=str(body["name"]),
        outcome=int(body.get("outcome", DONE)),
        before=_mapping(body.get("before")),
        after=_mapping(body.get("after")),
    )


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None

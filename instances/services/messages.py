"""Messages of a topic, read and sent for a person or an API client. The audit log says who did, and no contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from instances.access import require_reachable
from instances.messages import content, limits, page_token
from instances.messages.content import Content
from instances.messages.interfaces import (
    NEWER,
    OLDER,
    NewMessage,
    Page,
    PageRequest,
    Positions,
    Record,
    SendResult,
    Start,
    Unreadable,
    message_admin_client,
)
from instances.messages.turns import read_turns
from instances.models import Instance
from instances.services.topics import topic_ref
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import DomainError, OutcomeUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Page that a reader asks for. `start_words` are the caller's own for `start`: a token belongs to them."""

    start: Start
    start_words: str
    partition: int | None = None
    limit: int = limits.PAGE_MESSAGES_DEFAULT
    contains: str = ""
    key_contains: str = ""
    token: str = ""
    decode: str = content.AUTO

    @property
    def filters(self) -> Mapping[str, Any]:
        return {
            "start": self.start_words,
            "partition": self.partition,
            "contains": self.contains or None,
            "key_contains": self.key_contains or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A record with its contents as text."""

    record: Record
    key: Content
    value: Content
    headers: Sequence[tuple[str, Content]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Messages in reading order. The token of the direction of reading is `next_token`, None at its end."""

    messages: Sequence[ShownMessage]
    direction: str
    scanned: int
    read_bytes: int
    reached: Mapping[int, int]
    older_token: str | None
    newer_token: str | None
    unavailable: Sequence[int]
    unreadable: Sequence[Unreadable]
    is_end: bool

    @property
    def next_token(self) -> str | None:
        if self.is_end:
            return None
        return self.newer_token if self.direction == NEWER else self.older_token


@dataclass(slots=True)
class _Rendering:
    """Contents of the records of one page, rendered once: their size decides where the page ends."""

    how: str
    bytes_max: int
    by_place: dict[tuple[int, int], ShownMessage] = field(default_factory=dict)

    def shown_bytes(self, record: Record) -> int:
        shown = ShownMessage(
            record=record,
            key=content.show(record.key, self.how, self.bytes_max),
            value=content.show(record.value, self.how, self.bytes_max),
            headers=[
                (content.header_key(name[: limits.SHOWN_BYTES_MAX]), content.show(raw, self.how, self.bytes_max))
                for name, raw in record.headers
            ],
        )
        self.by_place[record.partition, record.offset] = shown
        sizes = [content.shown_bytes(shown.key), content.shown_bytes(shown.value)]
        return sum(sizes) + sum(len(name) + content.shown_bytes(value) for name, value in shown.headers)


def read_messages(*, acting: Actor, instance: Instance, topic: str, wanted: ReadRequest) -> MessagePage:
    """Returns one page of a topic's messages. No offset is committed and no group moves.

    Raises `NotFound` for a topic that is not there, `Invalid` for a partition that is not, and `Unavailable`.
    """
    access.require(acting, Scope.MESSAGES_READ)
    require_reachable(instance)
    binding = page_token.binding_of(instance.pk, topic, wanted.filters)
    positions = page_token.decode(wanted.token, binding) if wanted.token else None
    is_alone = wanted.limit == 1
    rendering = _Rendering(wanted.decode, limits.SHOWN_BYTES_ALONE_MAX if is_alone else limits.SHOWN_BYTES_MAX)
    contains, key_contains = wanted.contains.encode(), wanted.key_contains.encode()

    def accepts(record: Record) -> bool:
        key = record.key or b""
        return key_contains in key and (contains in key or contains in (record.value or b""))

    request = PageRequest(
        start=wanted.start,
        positions=positions,
        partition=wanted.partition,
        limit=wanted.limit,
        accepts=accepts,
        is_filtered=bool(contains or key_contains),
        shown_bytes=rendering.shown_bytes,
    )
    with read_turns.turn(instance.tenant_id):
        page = message_admin_client.it.read(instance.pk, topic, request)
    looked_at = {
        "start": wanted.start_words,
        "partition": wanted.partition,
        "filtered": request.is_filtered,
        "continued": positions is not None,
        "count": len(page.records),
    }
    audit.record(acting, "messages.read", topic_ref(instance, topic), None, looked_at, tenant=instance.tenant)
    return _shown(page, rendering, positions, binding)


def _shown(page: Page, rendering: _Rendering, positions: Positions | None, binding: str) -> MessagePage:
    before = {} if positions is None else positions.offsets

    def token(direction: str, offsets: Mapping[int, int]) -> str:
        """Partitions that did not answer stay where they were."""
        return page_token.encode(Positions(direction=direction, offsets={**before, **offsets}), binding)

    reads_newer = page.direction == NEWER
    return MessagePage(
        messages=[rendering.by_place[record.partition, record.offset] for record in page.records],
        direction=page.direction,
        scanned=page.scanned,
        read_bytes=page.read_bytes,
        reached=page.reached,
        older_token=token(OLDER, page.began if reads_newer else page.reached),
        newer_token=token(NEWER, page.reached if reads_newer else page.began),
        unavailable=page.unavailable,
        unreadable=page.unreadable,
        is_end=page.is_end,
    )


@audit.atomic
def send_messages(
    *, acting: Actor, instance: Instance, topic: str, messages: Sequence[NewMessage]
) -> Sequence[SendResult]:
    """Stores messages in a topic, those of a partition in the order given.

    Returns the place of each. Raises what is wrong with all of them: one that is refused alone is a result with its
    error.
    """
    access.require(acting, Scope.MESSAGES_WRITE)
    require_reachable(instance)
    size_bytes = sum(len(message.key or b"") + len(message.value or b"") for message in messages)
    sent = {"count": len(messages), "bytes": size_bytes}
    entry = audit.record(acting, "messages.sent", topic_ref(instance, topic), None, sent, tenant=instance.tenant)
    with audit.in_doubt(entry):
        results = message_admin_client.it.send(instance.pk, topic, messages)
        errors = [result.error for result in results if result.error is not None]
        if errors and len(errors) == len(results):
            raise _worst(errors)
    return results


def _worst(errors: Sequence[DomainError]) -> DomainError:
    """The error of a request that stored nothing for certain: doubt about one message is doubt about it."""
    return next((error for error in errors if isinstance(error, OutcomeUnknown)), errors[0])

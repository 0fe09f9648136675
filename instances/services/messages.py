"""Reading and sending of a topic's messages for the console and the API. Audit rows have no contents of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from instances.access import require_reachable
from instances.messages import content, files, limits, page_token
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
from instances.messages.limiters import ReadLimiter, read_limiter
from instances.messages.masks import VALUE
from instances.messages.record_filter import FilterTexts, RecordFilter, UnusableFilter
from instances.messages.rendering import Renderer, ShownMessage
from instances.models import Instance
from instances.services.topic_schemas import TopicSchemas, masks_for, schemas_of
from instances.services.topics import topic_ref
from instances.topics.presence import not_ready_if_pending
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import DomainError, FieldError, Invalid, OutcomeUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Request for a page of messages. `start_text` is the text of `start`, to which page tokens are bound."""

    start: Start
    start_text: str
    partition: int | None = None
    limit: int = limits.PAGE_MESSAGES_DEFAULT
    filters: FilterTexts = field(default_factory=FilterTexts)
    token: str = ""
    decode: str = content.AUTO
    # Leaders by partition of a topic that was described just before; None without such a description.
    leaders: Mapping[int, int] | None = None
    # Format of the file that is made of the page (`instances.messages.files`); empty without a file.
    file: str = ""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Start, partition and filters, to which page tokens are bound."""
        return {"start": self.start_text, "partition": self.partition, **self.filters.non_empty}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """A page of messages in reading order. `reached` has the offset by partition at which the next page begins;
    `next_token` continues in the direction of reading, and is None at the end.
    """

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
    """Rendered records of one page. They are rendered while it is read, because their size decides where it ends."""

    renderer: Renderer
    # True for a file of raw values: the page then ends by the size of whole values.
    counts_raw: bool = False
    message_by_position: dict[tuple[int, int], ShownMessage] = field(default_factory=dict)

    def shown_bytes(self, record: Record) -> int:
        shown = self.renderer.show(record)
        self.message_by_position[record.partition, record.offset] = shown
        sizes = [content.shown_bytes(shown.key), content.shown_bytes(shown.value)]
        size_bytes = sum(sizes) + sum(len(name) + content.shown_bytes(value) for name, value in shown.headers)
        return max(size_bytes, len(record.value or b"")) if self.counts_raw else size_bytes


def read_messages(*, acting: Actor, instance: Instance, topic: str, read_request: ReadRequest) -> MessagePage:
    """Returns one page of a topic's messages. No offset is committed.

    Fields that the actor may not see are masked, and filters do not find them. Raises `NotFound` for an unknown
    topic, `Invalid` for an unknown partition and for a wrong filter, and `Unavailable`.
    """
    access.require(acting, Scope.MESSAGES_READ)
    require_reachable(instance)
    binding = page_token.binding_of(instance.pk, topic, read_request.identity)
    positions = page_token.decode(read_request.token, binding) if read_request.token else None
    page, is_masked = read_page(acting, instance, topic, read_request, positions, binding)
    audit_values = {
        "start": read_request.start_text,
        "partition": read_request.partition,
        "filtered": bool(read_request.filters),
        "continued": positions is not None,
        "masked": is_masked,
        "count": len(page.messages),
        **({"file": read_request.file} if read_request.file else {}),
    }
    audit.record(acting, "messages.read", topic_ref(instance, topic), None, audit_values, tenant=instance.tenant)
    return page


def read_page(
    acting: Actor,
    instance: Instance,
    topic: str,
    read_request: ReadRequest,
    positions: Positions | None,
    binding: str,
    limiter: ReadLimiter = read_limiter,
) -> tuple[MessagePage, bool]:
    """Returns a page for an actor who may read messages, and True if masks apply to the actor. Writes no audit row."""
    schemas, masks = TopicSchemas(schemas_of(instance, topic)), masks_for(acting, instance, topic)
    if read_request.file in files.RAW_FORMATS and masks.covers(VALUE):
        access.require(acting, Scope.MESSAGES_UNMASK)
    is_alone = read_request.limit == 1
    bytes_max = limits.SHOWN_BYTES_ALONE_MAX if is_alone else limits.SHOWN_BYTES_MAX
    rendering = _Rendering(
        Renderer(schemas, masks, read_request.decode, bytes_max), counts_raw=read_request.file in files.RAW_FORMATS
    )
    record_filter = _filter(read_request)
    page_request = PageRequest(
        start=read_request.start,
        positions=positions,
        partition=read_request.partition,
        limit=read_request.limit,
        accepts=partial(record_filter.accepts, rendering.renderer),
        is_filtered=bool(read_request.filters),
        shown_bytes=rendering.shown_bytes,
        is_costly=bool(masks or schemas) or read_request.filters.is_costly,
        # A reader with masks must not learn anything about masked fields, not even from the duration of a read.
        literals=() if masks else record_filter.literals(is_decoded=bool(schemas)),
        leaders=read_request.leaders,
    )
    with limiter.slot(instance.tenant_id), not_ready_if_pending(instance, topic):
        page = message_admin_client.implementation.read(instance.pk, topic, page_request)
    return _shown(page, rendering, positions, binding), bool(masks)


def _filter(read_request: ReadRequest) -> RecordFilter:
    try:
        return RecordFilter(read_request.filters)
    except UnusableFilter as error:
        detail = str(error)
        raise Invalid(detail, errors=[FieldError(parameter=error.name, detail=detail, code="filter")]) from None


def _shown(page: Page, rendering: _Rendering, positions: Positions | None, binding: str) -> MessagePage:
    before = {} if positions is None else positions.offsets

    def token(direction: str, offsets: Mapping[int, int]) -> str:
        """Returns a token with these offsets, and the earlier ones of partitions that could not be read."""
        return page_token.encode(Positions(direction=direction, offsets={**before, **offsets}), binding)

    reads_newer = page.direction == NEWER
    return MessagePage(
        messages=[rendering.message_by_position[record.partition, record.offset] for record in page.records],
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
    """Produces messages to a topic; those of one partition keep their order.

    Returns the position of each message, or its error if it was refused. Raises an error if all are refused.
    """
    access.require(acting, Scope.MESSAGES_WRITE)
    require_reachable(instance)
    size_bytes = sum(len(message.key or b"") + len(message.value or b"") for message in messages)
    audit_values = {"count": len(messages), "bytes": size_bytes}
    entry = audit.record(
        acting, "messages.sent", topic_ref(instance, topic), None, audit_values, tenant=instance.tenant
    )
    with audit.in_doubt(entry), not_ready_if_pending(instance, topic):
        results = message_admin_client.implementation.send(instance.pk, topic, messages)
        errors = [result.error for result in results if result.error is not None]
        if errors and len(errors) == len(results):
            raise _request_error(errors)
    return results


def _request_error(errors: Sequence[DomainError]) -> DomainError:
    """Returns the error of a request if all its messages failed: `OutcomeUnknown` if one of them may be stored."""
    return next((error for error in errors if isinstance(error, OutcomeUnknown)), errors[0])

"""Stream of new messages of a topic. Each step reads a page that begins where the last one ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from django.utils import timezone

from instances.access import require_reachable
from instances.messages import limits, page_token
from instances.messages.interfaces import FROM_NEWEST, NEWER, Positions
from instances.messages.limiters import stream_limiter, stream_read_limiter
from instances.messages.record_filter import FilterTexts
from instances.messages.rendering import ShownMessage
from instances.models import Instance
from instances.services.messages import ReadRequest, read_page
from instances.services.topics import topic_ref
from tenants import access, audit, selectors
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import DomainError, Unauthenticated
from tenants.second_factor import gate

STREAM = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """Result of a step: new messages, with the token that continues after them, or the error if reading failed
    (`trouble`).

    The next step is due after `wait_s` seconds; None: the stream has ended.
    """

    messages: tuple[ShownMessage, ...] = ()
    token: str = ""
    trouble: DomainError | None = None
    wait_s: float | None = limits.STREAM_STEP_EVERY_S


@dataclass(slots=True, kw_only=True)
class MessageStream:
    """Open stream of one reader. It counts towards the limits of streams until `close`."""

    acting: Actor
    instance: Instance
    topic: str
    read_request: ReadRequest
    binding: str
    positions: Positions
    deadline_s: float
    now_s: Callable[[], float] = field(default=time.monotonic)
    is_closed: bool = False

    @property
    def token(self) -> str:
        return page_token.encode(self.positions, self.binding)

    def step(self) -> StreamStep:
        """Reads new messages with the current masks, schemas and rights. The stream ends if the token was revoked, or
        if the member was removed, has a role without the right, or no longer meets the tenant's rules for sessions.
        """
        if self.is_closed or self.now_s() >= self.deadline_s:
            return StreamStep(wait_s=None)
        try:
            acting = selectors.refreshed_actor(self.acting, timezone.now())
            if acting is None:
                raise Unauthenticated("The token or session of this stream is no longer valid.")
            gate.require_still(acting)
            access.require(acting, Scope.MESSAGES_READ)
            require_reachable(Instance.objects.get(pk=self.instance.pk))
            page, _ = read_page(
                acting, self.instance, self.topic, self.read_request, self.positions, self.binding, stream_read_limiter
            )
        except DomainError as error:
            is_fatal = error.http_status in (401, 403, 404, 409)
            return StreamStep(trouble=error, wait_s=None if is_fatal else limits.STREAM_STEP_EVERY_S)
        if page.newer_token is not None:
            self.positions = page_token.decode(page.newer_token, self.binding)
        wait_s = limits.STREAM_STEP_EVERY_S if page.is_end else limits.STREAM_STEP_SOON_S
        return StreamStep(messages=tuple(page.messages), token=self.token, wait_s=wait_s)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            stream_limiter.release(self.instance.tenant_id, self.instance.pk)


def open_stream(
    *, acting: Actor, instance: Instance, topic: str, read_request: ReadRequest, last_event_id: str = ""
) -> MessageStream:
    """Opens a stream that begins after the last message of the topic, or after the event `last_event_id`.

    A message may be repeated after an interruption; none is left out. Raises `NotFound` for an unknown topic,
    `DomainError(invalid_page_token)`, and `Unavailable` if the maximum number of streams is open.
    """
    access.require(acting, Scope.MESSAGES_READ)
    require_reachable(instance)
    read_request = replace(read_request, start=FROM_NEWEST, start_text=STREAM, limit=limits.STREAM_STEP_MESSAGES_MAX)
    binding = page_token.binding_of(instance.pk, topic, read_request.identity)
    positions = page_token.decode(last_event_id, binding) if last_event_id else None
    stream_limiter.acquire(instance.tenant_id, instance.pk)
    try:
        if positions is None:
            unfiltered = replace(read_request, filters=FilterTexts(), limit=1)
            page, _ = read_page(acting, instance, topic, unfiltered, None, binding)
            positions = page_token.decode(str(page.newer_token), binding)
        audit_values = {"start": STREAM, "partition": read_request.partition, "filtered": bool(read_request.filters),
                  "continued": bool(last_event_id)}  # fmt: skip
        audit.record(
            acting, "messages.streamed", topic_ref(instance, topic), None, audit_values, tenant=instance.tenant
        )
    except BaseException:
        stream_limiter.release(instance.tenant_id, instance.pk)
        raise
    positions = Positions(direction=NEWER, offsets=positions.offsets)
    deadline_s = time.monotonic() + limits.STREAM_S_MAX
    return MessageStream(
        acting=acting,
        instance=instance,
        topic=topic,
        read_request=read_request,
        binding=binding,
        positions=positions,
        deadline_s=deadline_s,
    )

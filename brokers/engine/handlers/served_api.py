"""Declaration of one Kafka call: its handler, what it is allowed to ask and cost, and each step around its handler.

`api_table` has a declaration of each call that is served; `answering` takes the steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.required_rights import RequiredRights
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.request_limits import LISTS, RequestLimit


class ListAsked(NamedTuple):
    """The allow-list of a topic that a call asks (CKA-11), and the reason; no operation: it asks none."""

    operation: Operation | None
    why: str


NO_TOPIC: Final = ListAsked(None, "names no topic")


class ListField(NamedTuple):
    """A field of a message, or of an item of its lists, that holds a list."""

    get: Callable[[Any], Any]
    set: Callable[[Any, list[Any]], None]


class SplitLists(NamedTuple):
    """The lists by which a long request is cut into parts, and the parts of its response are joined.

    `lines` and `result_lines` are lists within each item; without them an item is a line itself. `lines_max`: lines of
    a part.
    """

    items: ListField
    results: ListField
    lines: ListField | None
    result_lines: ListField | None
    lines_max: int


class NamedTopic(NamedTuple):
    """A topic as the client names it, and the highest partition of it in the request, or -1."""

    name: str
    partition: int


class Forwarding(Protocol):
    """Decides which other brokers answer a request, and joins their answers (`groups.coordinator_forwarding`)."""

    def leads_elsewhere(self, call: Any, request: Any) -> bool:
        """Returns True if another broker has to be asked."""

    async def answer(self, call: Any, request: Any, answer_here: AnswerHere) -> Any:
        """Returns the response. `answer_here` answers what this broker coordinates itself."""


AnswerHere = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One row of the API table.

    A handler takes the `Call` and the decoded request, and returns the response or an awaitable of it. Calls without
    one are answered elsewhere: Produce and Fetch have codecs of their own, SASL comes before a session.
    """

    key: ApiKey
    handle: Callable[[Any, Any], Any] | None
    rights: RequiredRights
    topic_list: ListAsked = NO_TOPIC
    limit: RequestLimit = LISTS
    # The request makes coordinators write, and is paid in bytes; a debtor waits before it is handled (`state_writes`).
    throttled_first: bool = False
    forwarding: Forwarding | None = None
    split: SplitLists | None = None
    # Topics that are looked for in the change log before they are called unknown (`fresh_topics`).
    topics_named: Callable[[Any], Iterable[NamedTopic]] | None = None
    # Describes what the call changed, for the audit log (`auditing`).
    audit: Callable[[Any], Any] | None = None
    # Counts the lines of a response, which is encoded in chunks when it is long.
    result_lines: Callable[[Any], int] | None = None

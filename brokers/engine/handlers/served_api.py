"""Declaration of one Kafka call: its handler, its required rights, its limits, and the steps around its handler.

`api_table` has the declarations of all supported calls; `answering` executes the steps.
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
    """The topic allow-list that a call requires (CKA-11), and the reason. Without an operation it requires none."""

    operation: Operation | None
    why: str


NO_TOPIC: Final = ListAsked(None, "names no topic")


class ListField(NamedTuple):
    """Accessors of a list field of a message, or of an item of its lists."""

    get: Callable[[Any], Any]
    set: Callable[[Any, list[Any]], None]


class SplitLists(NamedTuple):
    """The lists by which a long request is split, and by which the parts of its response are joined.

    `lines` and `result_lines` are lists within each item; without them an item counts as one line. `lines_max` is the
    number of lines in a part.
    """

    items: ListField
    results: ListField
    lines: ListField | None
    result_lines: ListField | None
    lines_max: int


class NamedTopic(NamedTuple):
    """A topic name from a request, with the highest partition requested of it, or -1."""

    name: str
    partition: int


class Forwarding(Protocol):
    """Decides which other brokers answer a request, and joins their responses (`groups.coordinator_forwarding`)."""

    def leads_elsewhere(self, call: Any, request: Any) -> bool:
        """True if another broker has to be asked."""

    async def answer(self, call: Any, request: Any, answer_here: AnswerHere) -> Any:
        """Returns the response. `answer_here` answers for what this broker coordinates."""


AnswerHere = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One row of the API table.

    A handler takes the `Call` and the decoded request, and returns the response or an awaitable of it. Calls without a
    handler are served elsewhere: Produce and Fetch by the fast codec, SASL before a session.
    """

    key: ApiKey
    handle: Callable[[Any, Any], Any] | None
    rights: RequiredRights
    topic_list: ListAsked = NO_TOPIC
    limit: RequestLimit = LISTS
    # True if coordinators write for the request, which is paid in bytes and waits for earlier debt (`state_writes`).
    throttled_first: bool = False
    forwarding: Forwarding | None = None
    split: SplitLists | None = None
    # Topics that are looked up in the change log before they are answered as unknown (`fresh_topics`).
    topics_named: Callable[[Any], Iterable[NamedTopic]] | None = None
    # Describes what the call changed, for the audit log (`auditing`).
    audit: Callable[[Any], Any] | None = None
    # Counts the lines of a response; long ones are encoded in chunks.
    result_lines: Callable[[Any], int] | None = None

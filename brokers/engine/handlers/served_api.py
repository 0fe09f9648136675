"""Declaration of one Kafka call: its handler, its required rights, its limits, and the steps around its handler.

`api_table` has the declarations of all supported calls, and runs the steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.access.authorizer import Operation
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.framing import LISTS, RequestLimit

# Error code of a denial, by kind of resource.
DENIALS: Final[Mapping[ResourceType, int]] = {
    ResourceType.TOPIC: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ResourceType.GROUP: int(ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ResourceType.CLUSTER: int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ResourceType.TRANSACTIONAL_ID: int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
# Apache Kafka's messages of denials, for responses that have a message.
DENIAL_TEXTS: Final[Mapping[int, str]] = {
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): "Topic authorization failed.",
    int(ErrorCode.GROUP_AUTHORIZATION_FAILED): "Group authorization failed.",
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED): "Cluster authorization failed.",
    int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): "Transactional Id authorization failed.",
}


class RequiredRights(NamedTuple):
    """Rights that a call requires. `operations` has the operation for each kind of resource; it is checked for each
    resource that a request names, and once for the cluster. `other_operations` are checked in addition or instead, as
    `explanation` says.
    """

    operations: Mapping[ResourceType, AclOperation]
    explanation: str
    other_operations: tuple[tuple[AclOperation, ResourceType], ...] = ()


class RequiredAllowList(NamedTuple):
    """Topic allow-list that a call requires (CKA-11), and the reason. Without an operation the call requires none."""

    operation: Operation | None
    explanation: str


NO_TOPIC: Final = RequiredAllowList(None, "names no topic")


class ListField(NamedTuple):
    """Accessors of a list field of a message, or of an item of its lists."""

    get: Callable[[Any], Any]
    set: Callable[[Any, list[Any]], None]


class SplitLists(NamedTuple):
    """The lists by which a long request is split, and by which the parts of its response are joined.

    `nested_items` and `nested_results` are lists within each item; without them an item counts as one element.
    `elements_max` is the number of elements in a part (`long_requests`).
    """

    items: ListField
    results: ListField
    nested_items: ListField | None
    nested_results: ListField | None
    elements_max: int


class NamedTopic(NamedTuple):
    """A topic name from a request, with the highest partition requested of it, or -1."""

    name: str
    partition: int


class Forwarding(Protocol):
    """Forwards parts of a request to other brokers, and joins the responses (`groups.coordinator_forwarding`)."""

    def needs_other_brokers(self, context: Any, request: Any) -> bool:
        """True if another broker has to handle a part of the request."""

    async def forward(self, context: Any, request: Any, handle_locally: HandleLocally) -> Any:
        """Returns the response. `handle_locally` handles the part that this broker coordinates."""


HandleLocally = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One row of the API table.

    A handler takes the `RequestContext` and the decoded request, and returns the response or an awaitable of it. Calls
    without a handler are served elsewhere: Produce and Fetch by the fast codec, SASL before a session.
    """

    key: ApiKey
    handle: Callable[[Any, Any], Any] | None
    rights: RequiredRights
    allow_list: RequiredAllowList = NO_TOPIC
    limit: RequestLimit = LISTS
    # True if coordinators write records for the request. These are charged to the instance's bandwidth, and the request
    # waits while the instance is in debt for earlier ones (`throttle_time`).
    throttled_first: bool = False
    forwarding: Forwarding | None = None
    split: SplitLists | None = None
    # Topics that are looked up in the change log before they are answered as unknown (`fresh_topics`).
    named_topics: Callable[[Any], Iterable[NamedTopic]] | None = None
    # Describes what the call changed, for the audit log (`auditing`); None if it administers nothing.
    audit: Callable[[Any], Any] | None = None
    # Counts the elements of a response; long ones are encoded in chunks.
    response_length: Callable[[Any], int] | None = None

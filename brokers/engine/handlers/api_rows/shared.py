"""Rights, allow-lists and message lists that several families of calls share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.common.long_requests import ELEMENTS_PER_TURN_MAX
from brokers.engine.handlers.served_api import ListField, RequiredAllowList, RequiredRights, SplitLists

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
ALTER_CONFIGS, DESCRIBE_CONFIGS = AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID
_NOTHING: Final[Mapping[ResourceType, AclOperation]] = MappingProxyType({})


def no_rights(why: str) -> RequiredRights:
    return RequiredRights(_NOTHING, why)


CLUSTER_ONLY: Final = no_rights("reserved for the cluster, denied to every tenant")
CLUSTER_ONLY_LIST: Final = RequiredAllowList(None, "reserved for the cluster, denied to every tenant")
BEFORE_LOGIN: Final = no_rights("comes before authentication")
READER_POSITION_LIST: Final = RequiredAllowList(Operation.CONSUME, "concerns the position of a reader of the topic")


def _set_topics(message: Any, items: list[Any]) -> None:
    message.topics = items


def _set_partitions(message: Any, items: list[Any]) -> None:
    message.partitions = items


TOPICS: Final = ListField(lambda message: message.topics, _set_topics)
PARTITIONS: Final = ListField(lambda message: message.partitions, _set_partitions)
BY_PARTITION: Final = SplitLists(TOPICS, TOPICS, PARTITIONS, PARTITIONS, ELEMENTS_PER_TURN_MAX)
# The partitions of a commit form one record batch, which is written or rejected as a whole.
COMMITS: Final = BY_PARTITION._replace(elements_max=500)


def element_count(outer: Callable[[Any], Any], inner: Callable[[Any], Any]) -> Callable[[Any], int]:
    """Returns a function that counts the elements of a response: its items, and the items within each."""
    return lambda response: sum(1 + len(inner(item) or ()) for item in outer(response))


def response_count(response: Any) -> int:
    return len(response.responses)


def result_count(response: Any) -> int:
    return len(response.results)

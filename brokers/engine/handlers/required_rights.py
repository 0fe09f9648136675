"""Rights that an API asks of its principal (WIRE-20), and the errors that answer their absence.

The rows of the API table are Apache Kafka's (KafkaApis), and `Call.denial` asks them. A call asks each resource that it
names: a denied one is answered with the error of its kind, for this resource alone where the response has a place for
it. Allow-lists of topics hold besides. The cluster itself, the owner of an instance and its superusers are asked
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.protocol.errors import ErrorCode

# What a resource is refused with, by its kind.
DENIALS: Final[Mapping[ResourceType, int]] = {
    ResourceType.TOPIC: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ResourceType.GROUP: int(ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ResourceType.CLUSTER: int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ResourceType.TRANSACTIONAL_ID: int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
# With the words of Apache Kafka, where an answer has room for them.
DENIAL_TEXTS: Final[Mapping[int, str]] = {
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): "Topic authorization failed.",
    int(ErrorCode.GROUP_AUTHORIZATION_FAILED): "Group authorization failed.",
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED): "Cluster authorization failed.",
    int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): "Transactional Id authorization failed.",
}


class RequiredRights(NamedTuple):
    """`asked`: of each resource of a kind that is named; of the cluster once. `also`: asked besides, or instead, as
    `why` says.
    """

    asked: Mapping[ResourceType, AclOperation]
    why: str
    also: tuple[tuple[AclOperation, ResourceType], ...] = ()

"""Rights that a call requires of its principal (WIRE-20), and the error codes of a denial.

The rows of the API table are Apache Kafka's (KafkaApis), and `Call.denial` checks them. Each resource that a call names
is checked: a denial has the error code of the resource's kind, for this resource alone where the response has a place
for it. Allow-lists of topics apply as well. The cluster itself, the owner of an instance and its superusers are not
checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.protocol.errors import ErrorCode

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
    """Rights of one call. `asked` has the operation for each kind of resource, checked for each named resource, and
    once for the cluster. `also` has operations that are checked in addition or instead, as `why` explains.
    """

    asked: Mapping[ResourceType, AclOperation]
    why: str
    also: tuple[tuple[AclOperation, ResourceType], ...] = ()

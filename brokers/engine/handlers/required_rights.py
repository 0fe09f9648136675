"""Which rights each API asks of its principal (WIRE-20): one row an API, and `Call.denial` is how they are asked.

The rows are Apache Kafka's (KafkaApis). A call asks each resource that it names: what is denied is answered with the
error of its kind, for this resource alone where the answer has a place for it. Allow-lists of topics (`topic_lists`)
hold besides. The cluster itself, the owner of an instance and its superusers are asked nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.protocol.apis import ApiKey
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


_K = ApiKey
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID
_READ, _WRITE, _CREATE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
_ALTER, _DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
_ALTER_CONFIGS, _DESCRIBE_CONFIGS = AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS
_NOTHING: Final[Mapping[ResourceType, AclOperation]] = MappingProxyType({})


def _none(why: str) -> RequiredRights:
    return RequiredRights(_NOTHING, why)


_MEMBER: Final = RequiredRights({_GROUP: _READ}, "members of a group read")
_OWN: Final = _none("the cluster's own, refused to every tenant")
_PROOF: Final = _none("comes before anybody is known")
_CONFIGURES: Final = RequiredRights(
    {_TOPIC: _ALTER_CONFIGS, _CLUSTER: _ALTER_CONFIGS}, "topics are asked by name, brokers as the cluster"
)

REQUIRED_RIGHTS: Final[Mapping[int, RequiredRights]] = {
    int(_K.PRODUCE): RequiredRights(
        {_TOPIC: _WRITE, _TRANSACTION: _WRITE}, "the transactional id is asked where a batch is of a transaction"
    ),
    int(_K.FETCH): RequiredRights({_TOPIC: _READ}, "reads records"),
    int(_K.LIST_OFFSETS): RequiredRights({_TOPIC: _DESCRIBE}, "says where records begin and end"),
    int(_K.METADATA): RequiredRights(
        {_TOPIC: _DESCRIBE},
        "topics that are not named and may not be described are left out; a topic that is made because it is asked "
        "about takes CREATE on the cluster or on itself; what may be done with the cluster is told to who may describe "
        "it",
        ((_CREATE, _CLUSTER), (_CREATE, _TOPIC), (_DESCRIBE, _CLUSTER)),
    ),
    int(_K.OFFSET_COMMIT): RequiredRights({_GROUP: _READ, _TOPIC: _READ}, "the group is asked first, for all of it"),
    int(_K.OFFSET_FETCH): RequiredRights(
        {_GROUP: _DESCRIBE, _TOPIC: _DESCRIBE}, "of all topics those that may not be described are left out"
    ),
    int(_K.FIND_COORDINATOR): RequiredRights({_GROUP: _DESCRIBE, _TRANSACTION: _DESCRIBE}, "by the kind of key"),
    int(_K.JOIN_GROUP): _MEMBER,
    int(_K.HEARTBEAT): _MEMBER,
    int(_K.LEAVE_GROUP): _MEMBER,
    int(_K.SYNC_GROUP): _MEMBER,
    int(_K.DESCRIBE_GROUPS): RequiredRights({_GROUP: _DESCRIBE}, "each group for itself"),
    int(_K.LIST_GROUPS): RequiredRights(
        {_GROUP: _DESCRIBE},
        "who may describe the cluster sees all groups, others those that they may describe",
        ((_DESCRIBE, _CLUSTER),),
    ),
    int(_K.SASL_HANDSHAKE): _PROOF,
    int(_K.API_VERSIONS): _PROOF,
    int(_K.CREATE_TOPICS): RequiredRights(
        {_TOPIC: _CREATE},
        "who may create in the cluster need not be asked about a topic; how it is configured is told to who may know",
        ((_CREATE, _CLUSTER), (_DESCRIBE_CONFIGS, _TOPIC)),
    ),
    int(_K.DELETE_TOPICS): RequiredRights(
        {_TOPIC: _DELETE},
        "the name of a topic that is named by its id is told to who may describe it",
        ((_DESCRIBE, _TOPIC),),
    ),
    int(_K.DELETE_RECORDS): RequiredRights({_TOPIC: _DELETE}, "shortens the topic"),
    int(_K.INIT_PRODUCER_ID): RequiredRights(
        {_TRANSACTION: _WRITE, _CLUSTER: AclOperation.IDEMPOTENT_WRITE},
        "without a transactional id: the cluster, or WRITE on any topic",
        ((_WRITE, _TOPIC),),
    ),
    int(_K.OFFSET_FOR_LEADER_EPOCH): RequiredRights({_TOPIC: _DESCRIBE}, "says where records end"),
    int(_K.ADD_PARTITIONS_TO_TXN): RequiredRights(
        {_TRANSACTION: _WRITE, _TOPIC: _WRITE}, "all or nothing; the transactional id is asked first"
    ),
    int(_K.ADD_OFFSETS_TO_TXN): RequiredRights({_TRANSACTION: _WRITE, _GROUP: _READ}, "the transactional id first"),
    int(_K.END_TXN): RequiredRights({_TRANSACTION: _WRITE}, "ends a transaction"),
    int(_K.WRITE_TXN_MARKERS): _OWN,
    int(_K.TXN_OFFSET_COMMIT): RequiredRights(
        {_TRANSACTION: _WRITE, _GROUP: _READ, _TOPIC: _READ}, "the transactional id first, then the group"
    ),
    int(_K.DESCRIBE_ACLS): RequiredRights({_CLUSTER: _DESCRIBE}, "shows who may do what"),
    int(_K.CREATE_ACLS): RequiredRights({_CLUSTER: _ALTER}, "who may alter the cluster gives rights, also to itself"),
    int(_K.DELETE_ACLS): RequiredRights({_CLUSTER: _ALTER}, "as CreateAcls"),
    int(_K.DESCRIBE_CONFIGS): RequiredRights(
        {_TOPIC: _DESCRIBE_CONFIGS, _CLUSTER: _DESCRIBE_CONFIGS}, "topics are asked by name, brokers as the cluster"
    ),
    int(_K.ALTER_CONFIGS): _CONFIGURES,
    int(_K.DESCRIBE_LOG_DIRS): RequiredRights({_CLUSTER: _DESCRIBE}, "says how many bytes there are"),
    int(_K.SASL_AUTHENTICATE): _PROOF,
    int(_K.CREATE_PARTITIONS): RequiredRights({_TOPIC: _ALTER}, "grows the topic"),
    int(_K.DELETE_GROUPS): RequiredRights({_GROUP: _DELETE}, "each group for itself"),
    int(_K.ELECT_LEADERS): _OWN,
    int(_K.INCREMENTAL_ALTER_CONFIGS): _CONFIGURES,
    int(_K.ALTER_PARTITION_REASSIGNMENTS): _OWN,
    int(_K.LIST_PARTITION_REASSIGNMENTS): _OWN,
    int(_K.OFFSET_DELETE): RequiredRights({_GROUP: _DELETE, _TOPIC: _READ}, "the group is asked first, for all of it"),
    int(_K.DESCRIBE_CLIENT_QUOTAS): RequiredRights({_CLUSTER: _DESCRIBE_CONFIGS}, "quotas count as configuration"),
    int(_K.ALTER_CLIENT_QUOTAS): RequiredRights({_CLUSTER: _ALTER_CONFIGS}, "quotas count as configuration"),
    int(_K.DESCRIBE_USER_SCRAM_CREDENTIALS): RequiredRights({_CLUSTER: _DESCRIBE}, "says which users there are"),
    int(_K.ALTER_USER_SCRAM_CREDENTIALS): RequiredRights({_CLUSTER: _ALTER}, "makes, changes and removes users"),
    int(_K.DESCRIBE_CLUSTER): RequiredRights(
        {_CLUSTER: _DESCRIBE}, "asked only for what may be done with the cluster; who is there is everybody's to know"
    ),
    int(_K.DESCRIBE_PRODUCERS): RequiredRights({_TOPIC: _READ}, "says who writes, and how much"),
    int(_K.DESCRIBE_TRANSACTIONS): RequiredRights(
        {_TRANSACTION: _DESCRIBE, _TOPIC: _DESCRIBE}, "topics of a transaction that may not be described are left out"
    ),
    int(_K.LIST_TRANSACTIONS): RequiredRights({_TRANSACTION: _DESCRIBE}, "others are left out"),
    int(_K.ALLOT_STORAGE): _OWN,
    int(_K.DESCRIBE_USERS): _OWN,
    int(_K.ALTER_USERS): _OWN,
    int(_K.REPORT_FLOW): _OWN,
    int(_K.CHARGE_POOLS): _OWN,
}

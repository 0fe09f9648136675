"""Calls and versions that a gateway forwards, and their intersection with those of the upstream broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.mapping import mapping_of
from brokers.engine.protocol.messages.sasl import ApiVersion

Versions = Mapping[ApiKey, tuple[int, int]]

_K = ApiKey

# Versions whose fields were reviewed one by one. Not in the table are versions
# * with message formats 0 and 1, which Kafka 4 no longer has (Produce to 2, Fetch to 3);
# * that request topics by id, whose owner a gateway cannot determine (Metadata 12, Fetch 13, DeleteTopics 6);
# * that create missing topics unasked (Metadata to 3), since creations are counted;
# * of members of the newer group protocol (OffsetCommit 9, OffsetFetch 9, ListGroups 5), and of share groups
#   (FindCoordinator 6);
# * of brokers only (AddPartitionsToTxn from 4).
REVIEWED: Final[Versions] = {
    _K.PRODUCE: (3, 11),
    _K.FETCH: (4, 12),
    _K.LIST_OFFSETS: (1, 8),
    _K.METADATA: (4, 11),
    _K.OFFSET_COMMIT: (2, 8),
    _K.OFFSET_FETCH: (1, 8),
    _K.FIND_COORDINATOR: (0, 5),
    _K.JOIN_GROUP: (0, 9),
    _K.HEARTBEAT: (0, 4),
    _K.LEAVE_GROUP: (0, 5),
    _K.SYNC_GROUP: (0, 5),
    _K.CREATE_TOPICS: (2, 7),
    _K.DELETE_TOPICS: (1, 5),
    _K.INIT_PRODUCER_ID: (0, 5),
    _K.ADD_PARTITIONS_TO_TXN: (0, 3),
    _K.ADD_OFFSETS_TO_TXN: (0, 4),
    _K.END_TXN: (0, 4),
    _K.TXN_OFFSET_COMMIT: (0, 4),
    _K.DESCRIBE_CONFIGS: (1, 4),
    _K.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    _K.DESCRIBE_GROUPS: (0, 5),
    _K.LIST_GROUPS: (0, 4),
    _K.DELETE_GROUPS: (0, 2),
    _K.OFFSET_DELETE: (0, 0),
    _K.DELETE_RECORDS: (0, 2),
    _K.CREATE_PARTITIONS: (0, 3),
    _K.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    _K.DESCRIBE_PRODUCERS: (0, 0),
    _K.DESCRIBE_TRANSACTIONS: (0, 0),
    _K.LIST_TRANSACTIONS: (0, 1),
}
# Calls that the gateway answers itself.
OWN: Final[Versions] = {_K.API_VERSIONS: (0, 4)}
OWN_WITH_SASL: Final[Versions] = {**OWN, _K.SASL_HANDSHAKE: (0, 1), _K.SASL_AUTHENTICATE: (0, 2)}
# Calls about users, rights, quotas and the addresses of an instance, which a gateway of a cluster answers from the
# cluster's documents in ZooKeeper.
ADMINISTERED: Final[Versions] = {
    key: ADVERTISED_TENANT[key]
    for key in (
        _K.DESCRIBE_ACLS, _K.CREATE_ACLS, _K.DELETE_ACLS, _K.DESCRIBE_CLIENT_QUOTAS, _K.ALTER_CLIENT_QUOTAS,
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS, _K.ALTER_USER_SCRAM_CREDENTIALS,
        _K.DESCRIBE_CLUSTER,
    )
}  # fmt: skip
ADMINISTERED_INTERNALLY: Final[Versions] = {
    **ADMINISTERED,
    **{key: ADVERTISED_INTERNAL[key] for key in (_K.DESCRIBE_USERS, _K.ALTER_USERS)},
}


def check_declared() -> None:
    """Checks that each field of a forwarded message that may have a name declares its kind. Raises UndeclaredField."""
    for api_key, (low, high) in REVIEWED.items():
        for version in range(low, high + 1):
            mapping_of(api_key, "request", version)
            mapping_of(api_key, "response", version)


def intersection(upstream: Mapping[int, tuple[int, int]]) -> dict[ApiKey, tuple[int, int]]:
    """Returns the calls and versions to forward to a broker that serves these versions, given by api key."""
    result = {}
    for api_key, (low, high) in REVIEWED.items():
        upstream_range = upstream.get(api_key)
        if upstream_range is not None and max(low, upstream_range[0]) <= min(high, upstream_range[1]):
            result[api_key] = max(low, upstream_range[0]), min(high, upstream_range[1])
    return result


def api_version_list(served: Versions) -> list[ApiVersion]:
    """Returns calls in the form of a response of ApiVersions."""
    return [
        ApiVersion(api_key=int(key), min_version=low, max_version=high) for key, (low, high) in sorted(served.items())
    ]

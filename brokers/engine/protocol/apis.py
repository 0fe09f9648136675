"""Table of the protocol's APIs and their versions (spec A.4), and the versions that each listener advertises.

Clients send what is advertised, so only versions that are served may be advertised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

# A version above all others, for calls that are never flexible or have no throttle time.
NEVER_FLEXIBLE: Final = 1 << 15
NEVER: Final = 1 << 15
# Lowest key of Penstock's own calls, far above Kafka's.
OWN_KEYS_FROM: Final = 20_000


class ApiKey(IntEnum):
    """Keys of the APIs for tenants' clients, the control plane and brokers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    # Penstock's own calls, from `OWN_KEYS_FROM` on. Between brokers:
    ALLOT_STORAGE = 20_001
    # From the control plane, on behalf of an instance:
    DESCRIBE_USERS = 20_002
    ALTER_USERS = 20_003
    # Between brokers:
    REPORT_FLOW = 20_004
    CHARGE_POOLS = 20_005


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the table.

    Attributes:
        key: the api key.
        version_max: highest version; all versions from 0 to this one have a codec.
        flexible_from: first version with compact lengths and tagged fields.
        throttle_from: first version whose response has `throttle_time_ms`.
        module: module below `messages/` with the declarations.
    """

    key: ApiKey
    version_max: int
    flexible_from: int
    throttle_from: int
    module: str


_K = ApiKey
APIS: Final[dict[int, Api]] = {
    int(key): Api(key, version_max, flexible_from, throttle_from, module)
    for key, version_max, flexible_from, throttle_from, module in (
        (_K.PRODUCE, 11, 9, 1, "produce"),
        (_K.FETCH, 17, 12, 1, "fetch"),
        (_K.LIST_OFFSETS, 9, 6, 2, "list_offsets"),
        (_K.METADATA, 12, 9, 3, "metadata"),
        (_K.OFFSET_COMMIT, 9, 8, 3, "offsets"),
        (_K.OFFSET_FETCH, 9, 6, 3, "offsets"),
        (_K.FIND_COORDINATOR, 6, 3, 1, "groups"),
        (_K.JOIN_GROUP, 9, 6, 2, "groups"),
        (_K.HEARTBEAT, 4, 4, 1, "groups"),
        (_K.LEAVE_GROUP, 5, 4, 1, "groups"),
        (_K.SYNC_GROUP, 5, 4, 1, "groups"),
        (_K.DESCRIBE_GROUPS, 5, 5, 1, "groups"),
        (_K.LIST_GROUPS, 5, 3, 1, "groups"),
        (_K.SASL_HANDSHAKE, 1, NEVER_FLEXIBLE, NEVER, "sasl"),
        (_K.API_VERSIONS, 4, 3, 1, "sasl"),
        (_K.CREATE_TOPICS, 7, 5, 2, "topics"),
        (_K.DELETE_TOPICS, 6, 4, 1, "topics"),
        (_K.DELETE_RECORDS, 2, 2, 0, "topics"),
        (_K.INIT_PRODUCER_ID, 5, 2, 0, "transactions"),
        (_K.OFFSET_FOR_LEADER_EPOCH, 4, 4, 2, "list_offsets"),
        (_K.ADD_PARTITIONS_TO_TXN, 5, 3, 0, "transactions"),
        (_K.ADD_OFFSETS_TO_TXN, 4, 3, 0, "transactions"),
        (_K.END_TXN, 4, 3, 0, "transactions"),
        (_K.WRITE_TXN_MARKERS, 1, 1, NEVER, "transactions"),
        (_K.TXN_OFFSET_COMMIT, 4, 3, 0, "transactions"),
        (_K.DESCRIBE_ACLS, 3, 2, 0, "acls"),
        (_K.CREATE_ACLS, 3, 2, 0, "acls"),
        (_K.DELETE_ACLS, 3, 2, 0, "acls"),
        (_K.DESCRIBE_CONFIGS, 4, 4, 0, "configs"),
        (_K.ALTER_CONFIGS, 2, 2, 0, "configs"),
        (_K.ALTER_REPLICA_LOG_DIRS, 2, 2, 0, "log_dirs"),
        (_K.DESCRIBE_LOG_DIRS, 4, 2, 0, "log_dirs"),
        (_K.SASL_AUTHENTICATE, 2, 2, NEVER, "sasl"),
        (_K.CREATE_PARTITIONS, 3, 2, 0, "topics"),
        (_K.DELETE_GROUPS, 2, 2, 0, "groups"),
        (_K.ELECT_LEADERS, 2, 2, 0, "reassignment"),
        (_K.INCREMENTAL_ALTER_CONFIGS, 1, 1, 0, "configs"),
        (_K.ALTER_PARTITION_REASSIGNMENTS, 0, 0, 0, "reassignment"),
        (_K.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, "reassignment"),
        (_K.OFFSET_DELETE, 0, NEVER_FLEXIBLE, 0, "offsets"),
        (_K.DESCRIBE_CLIENT_QUOTAS, 1, 1, 0, "quotas"),
        (_K.ALTER_CLIENT_QUOTAS, 1, 1, 0, "quotas"),
        (_K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, "scram"),
        (_K.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, "scram"),
        (_K.ALTER_PARTITION, 3, 0, 0, "cluster"),
        (_K.UPDATE_FEATURES, 1, 0, 0, "cluster"),
        (_K.DESCRIBE_CLUSTER, 1, 0, 0, "cluster"),
        (_K.DESCRIBE_PRODUCERS, 0, 0, 0, "producers"),
        (_K.DESCRIBE_TRANSACTIONS, 0, 0, 0, "producers"),
        (_K.LIST_TRANSACTIONS, 1, 0, 0, "producers"),
        (_K.ALLOT_STORAGE, 1, NEVER_FLEXIBLE, NEVER, "broker_reports"),
        (_K.DESCRIBE_USERS, 0, NEVER_FLEXIBLE, NEVER, "users"),
        (_K.ALTER_USERS, 0, NEVER_FLEXIBLE, NEVER, "users"),
        (_K.REPORT_FLOW, 0, NEVER_FLEXIBLE, NEVER, "broker_reports"),
        (_K.CHARGE_POOLS, 0, NEVER_FLEXIBLE, NEVER, "broker_reports"),
    )
}

# Versions that ApiVersions reports on a tenant's port.
ADVERTISED_TENANT: Final[dict[ApiKey, tuple[int, int]]] = {
    _K.PRODUCE: (0, 11),
    _K.FETCH: (0, 17),
    _K.LIST_OFFSETS: (0, 9),
    _K.METADATA: (0, 12),
    _K.OFFSET_COMMIT: (0, 9),
    _K.OFFSET_FETCH: (0, 9),
    _K.FIND_COORDINATOR: (0, 6),
    _K.JOIN_GROUP: (0, 9),
    _K.HEARTBEAT: (0, 4),
    _K.LEAVE_GROUP: (0, 5),
    _K.SYNC_GROUP: (0, 5),
    _K.DESCRIBE_GROUPS: (0, 5),
    _K.LIST_GROUPS: (0, 5),
    _K.API_VERSIONS: (0, 4),
    _K.CREATE_TOPICS: (2, 7),
    _K.DELETE_TOPICS: (1, 6),
    _K.DELETE_RECORDS: (0, 2),
    _K.INIT_PRODUCER_ID: (0, 5),
    _K.OFFSET_FOR_LEADER_EPOCH: (0, 4),
    _K.ADD_PARTITIONS_TO_TXN: (0, 5),
    _K.ADD_OFFSETS_TO_TXN: (0, 4),
    _K.END_TXN: (0, 4),
    _K.TXN_OFFSET_COMMIT: (0, 4),
    _K.DESCRIBE_ACLS: (0, 3),
    _K.CREATE_ACLS: (0, 3),
    _K.DELETE_ACLS: (0, 3),
    _K.DESCRIBE_CONFIGS: (1, 4),
    _K.ALTER_CONFIGS: (0, 2),
    _K.DESCRIBE_LOG_DIRS: (0, 4),
    _K.CREATE_PARTITIONS: (0, 3),
    _K.DELETE_GROUPS: (0, 2),
    _K.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    _K.OFFSET_DELETE: (0, 0),
    _K.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    _K.ALTER_CLIENT_QUOTAS: (0, 1),
    _K.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    _K.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    _K.DESCRIBE_CLUSTER: (0, 1),
    _K.DESCRIBE_PRODUCERS: (0, 0),
    _K.DESCRIBE_TRANSACTIONS: (0, 0),
    _K.LIST_TRANSACTIONS: (0, 1),
}

# Versions on a route with SASL; after authentication the SASL calls serve for re-authentication (KIP-368).
ADVERTISED_SASL: Final[dict[ApiKey, tuple[int, int]]] = dict(
    sorted({**ADVERTISED_TENANT, _K.SASL_HANDSHAKE: (0, 1), _K.SASL_AUTHENTICATE: (0, 2)}.items())
)

# Versions on the internal listener, which has SASL and, for the cluster's own users, administrative calls.
ADVERTISED_INTERNAL: Final[dict[ApiKey, tuple[int, int]]] = dict(
    sorted(
        {
            **ADVERTISED_TENANT,
            _K.SASL_HANDSHAKE: (0, 1),
            _K.SASL_AUTHENTICATE: (0, 2),
            _K.WRITE_TXN_MARKERS: (0, 1),
            _K.ELECT_LEADERS: (0, 2),
            _K.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
            _K.LIST_PARTITION_REASSIGNMENTS: (0, 0),
            _K.ALLOT_STORAGE: (0, 1),
            _K.DESCRIBE_USERS: (0, 0),
            _K.ALTER_USERS: (0, 0),
            _K.REPORT_FLOW: (0, 0),
            _K.CHARGE_POOLS: (0, 0),
        }.items()
    )
)

# Latest version of each of Penstock's own calls, by name. A broker registers it, so that others, which may run an
# earlier version, send it no later one (decision 164).
OWN_CALL_VERSIONS: Final[Mapping[str, int]] = {
    key.name.lower(): latest for key, (_, latest) in ADVERTISED_INTERNAL.items() if key >= OWN_KEYS_FROM
}

# First versions whose record sets are batches of format 2, which need no conversion.
PRODUCE_BATCHES_FROM: Final = 3
FETCH_BATCHES_FROM: Final = 4


def is_served(advertised: dict[ApiKey, tuple[int, int]], api_key: int, version: int) -> bool:
    """True if a listener with these advertised versions serves a call; if not, the listener closes the connection
    (WIRE-10).

    ApiVersions is answered in any version, in unknown ones with UNSUPPORTED_VERSION (35).
    """
    if api_key == ApiKey.API_VERSIONS:
        return api_key in advertised
    versions = advertised.get(api_key)  # type: ignore[call-overload]
    if versions is None:
        return False
    return bool(versions[0] <= version <= versions[1])


def has_throttle_time(api_key: int, version: int) -> bool:
    """True if the response of this version has `throttle_time_ms` (column T of spec A.4)."""
    return version >= APIS[api_key].throttle_from

"""DescribeCluster and FindCoordinator: who is there, and who would look after a group (GRP-1, CKA-6)."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.context import Call, Endpoint
from brokers.engine.handlers.metadata import CLUSTER_OPERATIONS
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.cluster import (
    BROKER_ENDPOINTS,
    OPERATIONS_NOT_ASKED,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from brokers.engine.protocol.messages.coordinators import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

CONTROLLER_ENDPOINTS: Final = 2
GROUP, TRANSACTION = 0, 1
GROUP_PARTITIONS: Final = 50
TRANSACTIONS_NOT_OFFERED: Final = "This cluster does not offer transactions."
KEYS_MAX: Final = 10_000
_BATCHED_FROM: Final = 4

_NOWHERE: Final = Endpoint(-1, "", -1, None)


def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    view = call.view
    if request.endpoint_type != BROKER_ENDPOINTS:
        known = request.endpoint_type == CONTROLLER_ENDPOINTS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="Only broker endpoints are described here.",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=view.cluster_id,
        controller_id=view.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=found.broker_id, host=found.host, port=found.port, rack=found.rack)
            for found in view.endpoints.values()
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def java_hash(text: str) -> int:
    """A string's hash as Java computes it: 31-polynomial over UTF-16 units, int32."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def group_partition(internal_group: str, partitions: int = GROUP_PARTITIONS) -> int:
    """GRP-1: the partition of the offsets topic that a group lives in; the smallest int32 counts as 0."""
    value = java_hash(internal_group)
    return 0 if value == -(1 << 31) else abs(value) % partitions


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=[_find(call, request.key_type, key) for key in request.coordinator_keys[:KEYS_MAX]]
        )
    found = _find(call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        coordinators=[],
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    """The same live broker of the instance for the same group, whoever is asked."""
    endpoint, error, message = _NOWHERE, 0, None
    if key_type == TRANSACTION:
        error, message = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), TRANSACTIONS_NOT_OFFERED
    elif key_type != GROUP:
        error, message = int(ErrorCode.INVALID_REQUEST), f"Unknown coordinator type {key_type}."
    elif not call.view.endpoints:
        error, message = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), "No broker of this instance is alive."
    else:
        live = list(call.view.endpoints.values())
        endpoint = live[group_partition(call.view.namespace.internal_id(key)) % len(live)]
    return Coordinator(
        key=key,
        node_id=endpoint.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=error,
        error_message=message,
    )

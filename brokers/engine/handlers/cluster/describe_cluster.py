"""DescribeCluster: the brokers of the cluster (CKA-6)."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.context import Call
from brokers.engine.handlers.topics.metadata import cluster_operations
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.cluster import (
    BROKER_ENDPOINTS,
    OPERATIONS_NOT_ASKED,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

CONTROLLER_ENDPOINTS: Final = 2


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
            DescribeClusterBroker(
                broker_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
            for endpoint in view.endpoints.values()
        ],
        cluster_authorized_operations=(
            cluster_operations(call) if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )

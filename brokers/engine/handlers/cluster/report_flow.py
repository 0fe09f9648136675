"""ReportFlow and ChargePools: other brokers report to the flow master what clients of their instances moved (CKA-22).

Only the cluster itself may ask.
"""

from __future__ import annotations

from brokers.engine.handlers.context import Call
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.flow import ReportFlowRequest, ReportFlowResponse
from brokers.engine.protocol.messages.pools import ChargePoolsRequest, ChargePoolsResponse


def report_flow(call: Call, request: ReportFlowRequest) -> ReportFlowResponse:
    if not call.view.internal or call.view.instance_id is not None:
        return ReportFlowResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return call.engine.report_flow(request)


def charge_pools(call: Call, request: ChargePoolsRequest) -> ChargePoolsResponse:
    if not call.view.internal or call.view.instance_id is not None:
        return ChargePoolsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return call.engine.charge_pools(request)

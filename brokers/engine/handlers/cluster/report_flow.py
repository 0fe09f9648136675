"""ReportFlow: another broker reports what clients of its instances moved, and is answered its shares (CKA-22).

Only the cluster itself may ask.
"""

from __future__ import annotations

from brokers.engine.handlers.context import Call
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.flow import ReportFlowRequest, ReportFlowResponse


def report_flow(call: Call, request: ReportFlowRequest) -> ReportFlowResponse:
    if not call.view.internal or call.view.instance_id is not None:
        return ReportFlowResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return call.engine.report_flow(request)

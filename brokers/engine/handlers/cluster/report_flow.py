"""ReportFlow: another broker reports what clients of its instances moved, and is answered its shares (CKA-22).

Only that broker may ask.
"""

from __future__ import annotations

from brokers.engine.handlers.common.peer_brokers import speaker_error
from brokers.engine.handlers.context import Call
from brokers.engine.protocol.messages.flow import ReportFlowRequest, ReportFlowResponse


def report_flow(call: Call, request: ReportFlowRequest) -> ReportFlowResponse:
    error = speaker_error(call.engine, call.view.principal, request.broker_id, request.broker_epoch)
    if error:
        return ReportFlowResponse(error_code=error)
    return call.engine.report_flow(request)

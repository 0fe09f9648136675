"""ReportFlow and ChargePools: other brokers report to the flow master what clients of their instances moved (CKA-22).

Only that broker may ask.
"""

from __future__ import annotations

from brokers.engine.handlers.common.peer_brokers import speaker_error
from brokers.engine.handlers.context import Call
from brokers.engine.protocol.messages.flow import ReportFlowRequest, ReportFlowResponse
from brokers.engine.protocol.messages.pools import ChargePoolsRequest, ChargePoolsResponse


def report_flow(call: Call, request: ReportFlowRequest) -> ReportFlowResponse:
    error = speaker_error(call.services, call.view.principal, request.broker_id, request.broker_epoch)
    if error:
        return ReportFlowResponse(error_code=error)
    return call.services.accounting.report_flow(request)


def charge_pools(call: Call, request: ChargePoolsRequest) -> ChargePoolsResponse:
    error = speaker_error(call.services, call.view.principal, request.broker_id, request.broker_epoch)
    if error:
        return ChargePoolsResponse(error_code=error)
    return call.services.accounting.charge_pools(request)

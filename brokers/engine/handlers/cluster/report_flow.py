"""ReportFlow and ChargePools: brokers report the traffic of their instances' clients to the flow master (CKA-22).

Only the named broker may send them.
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

"""AllotStorage, ReportFlow and ChargePools: reports of a broker to the controller and the flow master.

A request names a broker, and only that broker may send it. AllotStorage reports the stored bytes of each instance, and
is answered with the bytes that the broker may append (CKA-26); the other two report the traffic of clients (CKA-22).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokers.engine.handlers.common.peer_brokers import peer_error
from brokers.engine.handlers.context import RequestContext
from brokers.engine.protocol.messages.broker_reports import (
    AllotStorageRequest,
    AllotStorageResponse,
    ChargePoolsRequest,
    ChargePoolsResponse,
    ReportFlowRequest,
    ReportFlowResponse,
)


def allot_storage(context: RequestContext, request: AllotStorageRequest) -> AllotStorageResponse:
    return _serve_peer(context, request, context.services.accounting.allot_storage, AllotStorageResponse)


def report_flow(context: RequestContext, request: ReportFlowRequest) -> ReportFlowResponse:
    return _serve_peer(context, request, context.services.accounting.report_flow, ReportFlowResponse)


def charge_pools(context: RequestContext, request: ChargePoolsRequest) -> ChargePoolsResponse:
    return _serve_peer(context, request, context.services.accounting.charge_pools, ChargePoolsResponse)


def _serve_peer(
    context: RequestContext, request: Any, serve: Callable[[Any], Any], response_type: Callable[..., Any]
) -> Any:
    error = peer_error(context.services, context.view.principal, request.broker_id, request.broker_epoch)
    return response_type(error_code=error) if error else serve(request)

"""Requests in which a process acts as a broker of the cluster (decision 106): their checks, and the reports of a broker
to the controller and the flow master.

A report, an allotment or a follower's fetch names a broker and its epoch. The broker must be that of the peer's
certificate, and the epoch that of the broker's registration: otherwise one process could report for another, and an
epoch from the future would lock out the real broker. AllotStorage reports the stored bytes of each instance, and is
answered with the bytes that the broker may append (CKA-26); ReportFlow and ChargePools report the traffic of clients
(CKA-22).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from brokers.contract.process_identity import ProcessRole
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import (
    AllotStorageRequest,
    AllotStorageResponse,
    ChargePoolsRequest,
    ChargePoolsResponse,
    ReportFlowRequest,
    ReportFlowResponse,
)

_UNAUTHORIZED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_STALE_EPOCH: Final = int(ErrorCode.STALE_BROKER_EPOCH)


def is_cluster(principal: Principal) -> bool:
    """True for a process of the installation that acts for the cluster, not for an instance."""
    return principal.internal and principal.instance_id is None


def is_broker(principal: Principal) -> bool:
    """True if the peer may send calls that are reserved for brokers.

    The peer's certificate decides. A peer without one has the cluster's secret, which is no longer accepted when all
    brokers of the cluster use TLS.
    """
    process = principal.process
    return is_cluster(principal) and (process is None or process.role is ProcessRole.BROKER)


def is_named_broker(services: BrokerServices, principal: Principal, broker_id: int) -> bool:
    """True if the peer is the broker that it names, as far as its certificate shows.

    A peer that used the cluster's secret is trusted unless both brokers use TLS: the real one would then have sent its
    certificate.
    """
    if not is_cluster(principal):
        return False
    if principal.process is not None:
        return principal.may_follow_as(broker_id)
    brokers = services.metadata.current.image.brokers
    this_broker, named_broker = brokers.get(services.broker_id), brokers.get(broker_id)
    return this_broker is None or named_broker is None or not (this_broker.has_tls and named_broker.has_tls)


def peer_error(services: BrokerServices, principal: Principal, broker_id: int, broker_epoch: int) -> int:
    """Returns the error code of a request that names a broker and its epoch; 0 if the peer is that broker.

    A different epoch is rejected even if it is greater: a peer that registered a moment ago retries when this broker
    has seen its registration.
    """
    if not is_named_broker(services, principal, broker_id):
        return _UNAUTHORIZED
    broker = services.metadata.current.image.brokers.get(broker_id)
    return 0 if broker is not None and broker.epoch == broker_epoch else _STALE_EPOCH


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

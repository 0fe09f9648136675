"""Checks of requests in which a process speaks for a broker of the cluster (decision 106).

A report, an allotment or a follower's fetch names a broker and its epoch. The name must be that of the peer's
certificate and the epoch that of the broker's registration: otherwise one process could report for another, and with an
epoch from the future keep the real one out.
"""

from __future__ import annotations

from typing import Final

from brokers.contract.process_identity import Role
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.protocol.errors import ErrorCode

_UNAUTHORIZED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_STALE_EPOCH: Final = int(ErrorCode.STALE_BROKER_EPOCH)


def is_cluster(principal: Principal) -> bool:
    """True for a process of the installation that speaks for the cluster and not for an instance."""
    return principal.internal and principal.instance_id is None


def is_broker(principal: Principal) -> bool:
    """True if the peer may make calls that only brokers make.

    Its certificate says so; a peer without one knows the cluster's secret, which opens nothing once all brokers of the
    cluster take TLS.
    """
    process = principal.process
    return is_cluster(principal) and (process is None or process.role is Role.BROKER)


def is_speaker(services: BrokerServices, principal: Principal, broker_id: int) -> bool:
    """True if the peer is the broker that it names, as far as certificates can tell.

    A peer that came by the cluster's secret is believed unless both brokers take TLS: then the other one would have
    come with its certificate.
    """
    if not is_cluster(principal):
        return False
    if principal.process is not None:
        return principal.may_follow_as(broker_id)
    brokers = services.metadata.current.image.brokers
    me, named = brokers.get(services.broker_id), brokers.get(broker_id)
    return me is None or named is None or not (me.has_tls and named.has_tls)


def speaker_error(services: BrokerServices, principal: Principal, broker_id: int, broker_epoch: int) -> int:
    """Returns the error code of a request that names a broker and its epoch; 0 if the peer is that broker.

    An epoch that differs is refused even if it is greater: a peer that registered a moment ago asks again when this
    broker has seen it.
    """
    if not is_speaker(services, principal, broker_id):
        return _UNAUTHORIZED
    broker = services.metadata.current.image.brokers.get(broker_id)
    return 0 if broker is not None and broker.epoch == broker_epoch else _STALE_EPOCH

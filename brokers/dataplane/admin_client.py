"""Requests to brokers of a cluster: choice of broker and identity, and conversion of Kafka errors to domain errors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.utils.translation import gettext_noop
from kafka.errors import for_code

from brokers.contract import gateway_calls
from brokers.contract.process import CLUSTER_USER
from brokers.dataplane.link import Link, LinkDown, Links
from brokers.dataplane.unresponsive_brokers import unresponsive_brokers
from brokers.limits import ADMIN_CLIENT_CONNECTIONS_MAX
from brokers.models import Broker, Cluster, Placement
from tenants.errors import (
    Conflict,
    DomainError,
    FieldError,
    Invalid,
    Message,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    QuotaExceeded,
    Unavailable,
)

# Kafka error code -> (class, our stable code). Other errors are internal or environmental, and become a 503.
DOMAIN_ERRORS: dict[int, tuple[type[DomainError], str]] = {
    3: (NotFound, "not_found"),
    10: (Invalid, "message_too_large"),
    17: (Invalid, "invalid_name"),
    18: (Invalid, "message_too_large"),
    24: (Invalid, "invalid_group"),
    25: (Conflict, "group_not_empty"),
    29: (PermissionDenied, "permission_denied"),
    32: (Invalid, "invalid_timestamp"),
    36: (Conflict, "already_exists"),
    37: (Invalid, "invalid_partitions"),
    38: (Invalid, "invalid_replication_factor"),
    39: (Invalid, "invalid_assignment"),
    40: (Invalid, "invalid_config"),
    42: (Invalid, "invalid_request"),
    44: (QuotaExceeded, "quota_exceeded"),
    60: (Conflict, "already_in_progress"),
    68: (Conflict, "group_not_empty"),
    69: (NotFound, "not_found"),
    86: (Conflict, "topic_subscribed"),
    87: (Invalid, "invalid_record"),
    89: (Conflict, "throttled"),
    91: (NotFound, "not_found"),
    92: (Conflict, "already_exists"),
    93: (Invalid, "unacceptable_credential"),
    100: (NotFound, "not_found"),
}
# Kafka error code -> JSON pointer of the field that the error is about.
POINTERS = {17: "/name", 36: "/name", 37: "/partitions", 38: "/replication_factor", 40: "/config", 92: "/name"}

NO_BROKER_ANSWERS = "No broker of the instance answers at the moment. Nothing is lost."


@cache
def _links(_pid: int) -> Links:
    """Returns the links of this process; a forked process starts with none."""
    return Links(ADMIN_CLIENT_CONNECTIONS_MAX)


def links() -> Links:
    """Returns the idle links of this process."""
    return _links(os.getpid())


class NotOnKafkaCluster(Unavailable):
    """The cluster of the instance is an existing Kafka, in front of which gateways do not serve the call. Repeating it
    does not help, but pages treat it like any other answer that brokers do not give.
    """

    code = "not_on_kafka_cluster"
    http_status = 409
    title = "Not available for instances on a Kafka cluster"


def require_served(cluster: Cluster, username: str, request: Any) -> None:
    """Raises `NotOnKafkaCluster` for a call of an instance that gateways of its cluster do not serve."""
    if cluster.is_kafka and username != CLUSTER_USER and request.API_KEY not in gateway_calls.SERVED:
        raise not_on_kafka_cluster()


def not_on_kafka_cluster() -> NotOnKafkaCluster:
    return NotOnKafkaCluster(gettext_noop("This is not available for instances on a Kafka cluster."))


def send_as_instance(instance_id: str, request: Any, **options: Any) -> Any:
    """Sends one request as the instance's owner. Raises `Unavailable` if no broker answers."""
    return send_request(cluster_of(instance_id), instance_id, request, **options)


def cluster_of(instance_id: str) -> Cluster:
    """Returns the cluster of an instance. Raises `Conflict` while it has none."""
    placement = Placement.objects.select_related("cluster").filter(instance_id=instance_id).first()
    if placement is None:
        raise Conflict("The instance has no brokers.", code="instance_not_reachable")
    return placement.cluster


def send_as_cluster(cluster: Cluster, request: Any, **options: Any) -> Any:
    """Sends one request as the cluster's own user, with internal names. Raises `Unavailable` if no broker answers."""
    return send_request(cluster, CLUSTER_USER, request, **options)


def send_request(cluster: Cluster, username: str, request: Any, *, broker: int | None = None, **options: Any) -> Any:
    """Sends a request to one broker, or to any: over an idle link, otherwise to one broker after another until one
    answers, unresponsive ones last. Raises `Unavailable` if none does.

    This is for writes; `scatter.send_to_any_broker` is for reads. A link that died while idle costs a second attempt.
    All requests here may be repeated: the creation of an existing object or the deletion of a missing one is an error,
    not damage.
    """
    response, failure, _ = _try_brokers(cluster, username, request, broker, options)
    if response is None:
        raise Unavailable(NO_BROKER_ANSWERS, retry_after_s=1) from failure
    return response


def send_change(instance_id: str, request: Any) -> tuple[Any, bool]:
    """Sends a change requested by a tenant as the instance's owner.

    Returns the response, and True if an earlier attempt may have been executed. If no broker answers, raises
    `OutcomeUnknown` if a broker received the request, otherwise `Unavailable`.
    """
    response, failure, may_be_executed = _try_brokers(cluster_of(instance_id), instance_id, request, None, {})
    if response is not None:
        return response, may_be_executed
    raise (OutcomeUnknown() if may_be_executed else Unavailable(NO_BROKER_ANSWERS, retry_after_s=1)) from failure


def _try_brokers(
    cluster: Cluster, username: str, request: Any, broker: int | None, options: dict[str, Any]
) -> tuple[Any, LinkDown | None, bool]:
    """Returns (response or None, the failure without a response, True if an unanswered attempt may be executed)."""
    require_served(cluster, username, request)
    key = (cluster.pk, username, broker)
    idle = links().acquire(key)
    if idle is not None and (unresponsive_brokers.is_unresponsive(idle.address) or not idle.is_alive):
        idle.close()
        idle = None
    was_sent = False
    if idle is not None:
        try:
            return _call_and_release(key, idle, request, options), None, False
        except LinkDown as error:
            was_sent = error.was_sent
    reasons: list[str] = []
    for candidate in _brokers(cluster, broker):
        try:
            link = Link(candidate.internal_address, username, cluster.read_control_secret(), candidate.certified_as)
            return _call_and_release(key, link, request, options), None, was_sent
        except LinkDown as error:
            reasons.append(str(error))
            was_sent = was_sent or error.was_sent
    return None, LinkDown("; ".join(reasons) or "the cluster has no brokers"), was_sent


def _call_and_release(key: Any, link: Link, request: Any, options: dict[str, Any]) -> Any:
    response = link.call(request, **options)
    links().release(key, link)
    return response


def _brokers(cluster: Cluster, broker: int | None) -> Iterable[Broker]:
    rows = Broker.objects.filter(cluster=cluster, removed_at=None).select_related("host").order_by("number")
    if broker is not None:
        rows = rows.filter(number=broker)
    return sorted(rows, key=lambda row: unresponsive_brokers.is_unresponsive(row.internal_address))


def require_ok(error_code: int, message: str | None = None) -> None:
    """Raises the domain error for a Kafka error code other than 0.

    `message` is the broker's, which already uses the tenant's names.
    """
    if error_code:
        raise domain_error_of(error_code, message)


def domain_error_of(error_code: int, message: str | None = None) -> DomainError:
    """Returns the domain error for a Kafka error code other than 0."""
    error_class = for_code(error_code)
    detail = (message or error_class.description or error_class.__name__).strip()
    class_and_code = DOMAIN_ERRORS.get(error_code)
    if class_and_code is None:
        return Unavailable(
            Message(gettext_noop("The brokers answered: %(words)s"), words=f"{detail} ({error_code})"), retry_after_s=1
        )
    pointer = POINTERS.get(error_code)
    errors = [FieldError(pointer=pointer, detail=detail, code=class_and_code[1])] if pointer else []
    return class_and_code[0](detail, code=class_and_code[1], errors=errors)

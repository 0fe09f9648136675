"""Lookup of the coordinators of groups and transactional ids, and requests to them with retries.

On Penstock's own brokers the lookup is sent as the cluster's own user, with the internal name. An instance's owner may
get a broker of the instance that only forwards requests to the coordinator. Requests to the coordinator are sent as the
instance's owner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest

from brokers.contract.process import CLUSTER_USER
from brokers.dataplane.admin_client import cluster_of, require_ok
from brokers.dataplane.scatter import Target, first_response, scatter, targets
from brokers.limits import COORDINATOR_PATIENCE_S, COORDINATOR_RETRY_S
from brokers.models import Cluster
from instances.naming import internal_scoped, split_internal
from tenants.errors import Message, OutcomeUnknown, Unavailable

FIND_COORDINATOR_VERSION = 4
GROUP, TRANSACTION = 0, 1
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
CONCURRENT_TRANSACTIONS = 51
RETRIABLE_ERRORS = frozenset({LOADING, NOT_AVAILABLE, NOT_COORDINATOR})
ERROR_TEXTS = {
    LOADING: "its coordinator is loading",
    NOT_AVAILABLE: "it has no coordinator at the moment",
    NOT_COORDINATOR: "its coordinator is moving",
}


def find_coordinators(cluster: Cluster, kind: int, internal_ids: Sequence[str]) -> dict[str, int]:
    """Returns broker numbers by internal id; ids without a coordinator at the moment are missing.

    On a Kafka cluster the result has the gateways of the upstream's coordinators. Raises `Unavailable` if no broker
    answers.
    """
    if not internal_ids:
        return {}
    if cluster.is_kafka:
        return _find_upstream_coordinators(cluster, kind, internal_ids)
    return _find_coordinators_as(cluster, CLUSTER_USER, kind, internal_ids)


def _find_upstream_coordinators(cluster: Cluster, kind: int, internal_ids: Sequence[str]) -> dict[str, int]:
    """Looks up coordinators as each instance: gateways forward no calls of the cluster's own user."""
    names_by_instance: dict[str, list[str]] = {}
    for internal_id in internal_ids:
        instance_id, name = split_internal(internal_id)
        if instance_id is not None:
            names_by_instance.setdefault(instance_id, []).append(name)
    return {
        internal_scoped(instance_id, name): number
        for instance_id, names in names_by_instance.items()
        for name, number in _find_coordinators_as(cluster, instance_id, kind, names).items()
    }


def _find_coordinators_as(cluster: Cluster, username: str, kind: int, ids: Sequence[str]) -> dict[str, int]:
    keys = list(ids)
    response = first_response(
        targets(cluster, username).values(),
        lambda: FindCoordinatorRequest(key_type=kind, coordinator_keys=keys, version=FIND_COORDINATOR_VERSION),
    )
    return {coordinator.key: coordinator.node_id for coordinator in response.coordinators if not coordinator.error_code}


def find_coordinators_of_instance(cluster: Cluster, instance_id: str, kind: int, ids: Sequence[str]) -> dict[str, int]:
    """Returns broker numbers by the tenant's group or transactional id. Otherwise like `find_coordinators`."""
    names_by_internal_id = {internal_scoped(instance_id, name): name for name in ids}
    return {
        names_by_internal_id[key]: number
        for key, number in find_coordinators(cluster, kind, list(names_by_internal_id)).items()
        if key in names_by_internal_id
    }


def ids_by_broker(ids: Mapping[str, int]) -> dict[int, list[str]]:
    """Returns the sorted ids by broker number; `ids` has broker numbers by id."""
    result: dict[int, list[str]] = {}
    for name, number in sorted(ids.items()):
        result.setdefault(number, []).append(name)
    return result


def send_to_coordinator(
    instance_id: str,
    kind: int,
    name: str,
    new_request: Callable[[], Any],
    error_of: Callable[[Any], int],
    *,
    retriable: frozenset[int] = RETRIABLE_ERRORS,
) -> Any:
    """Sends a request to the coordinator of one id as the instance's owner, and retries while it moves.

    `error_of` returns the coordinator's error in a response. Raises the remaining error after the time limit.
    """
    cluster = cluster_of(instance_id)
    return send_until_complete(
        cluster,
        targets(cluster, instance_id),
        kind,
        internal_scoped(instance_id, name),
        new_request,
        error_of,
        retriable=retriable,
    )


def send_until_complete(
    cluster: Cluster,
    brokers: Mapping[int, Target],
    kind: int,
    internal_id: str,
    new_request: Callable[[], Any],
    error_of: Callable[[Any], int],
    *,
    retriable: frozenset[int] = RETRIABLE_ERRORS,
) -> Any:
    """Sends a request like `send_to_coordinator`, with the identities of the targets in `brokers` (by broker number).

    Raises `OutcomeUnknown` after the time limit if a coordinator that has not answered may have the request.
    """
    deadline_s = time.monotonic() + COORDINATOR_PATIENCE_S
    error_code = NOT_AVAILABLE
    may_be_executed = False
    while True:
        target = brokers.get(_find_coordinator(cluster, kind, internal_id, may_be_executed))
        if target is not None:
            result = scatter([(target, new_request())], is_write=True)
            may_be_executed = may_be_executed or result.may_be_executed
            if result.responses:
                response = result.responses[0][1]
                error_code = error_of(response)
                if error_code not in retriable:
                    return response
        if time.monotonic() >= deadline_s:
            break
        time.sleep(COORDINATOR_RETRY_S)
    if may_be_executed:
        raise OutcomeUnknown
    if error_code in ERROR_TEXTS:
        raise Unavailable(
            Message(gettext_noop("Not at the moment: %(why)s."), why=ERROR_TEXTS[error_code]), retry_after_s=1
        )
    require_ok(error_code)
    raise AssertionError("an answer that is no error would have been returned")


def _find_coordinator(cluster: Cluster, kind: int, internal_id: str, may_be_executed: bool) -> int:
    """Returns the broker's number, -1 without one. Raises `OutcomeUnknown` or `Unavailable` if no broker answers."""
    try:
        return find_coordinators(cluster, kind, [internal_id]).get(internal_id, -1)
    except Unavailable as error:
        if may_be_executed:
            raise OutcomeUnknown from error
        raise

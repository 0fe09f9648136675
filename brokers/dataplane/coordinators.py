"""Who coordinates a group or a transactional id, and which answers a moment changes.

The coordinator is asked for as the cluster, under the internal name: as the instance, FindCoordinator may name one of
the instance's own brokers, which only passes calls on. What is asked of it is asked as the instance's owner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest

from brokers.contract.process import CLUSTER_USER
from brokers.dataplane.admin_client import cluster_of, require_ok
from brokers.dataplane.scatter import Target, first_answer, scatter, targets
from brokers.limits import COORDINATOR_PATIENCE_S, COORDINATOR_RETRY_S
from brokers.models import Cluster
from instances.naming import internal_scoped
from tenants.errors import OutcomeUnknown, Unavailable

FIND_COORDINATOR_VERSION = 4
GROUP, TRANSACTION = 0, 1
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
CONCURRENT_TRANSACTIONS = 51
PASSING = frozenset({LOADING, NOT_AVAILABLE, NOT_COORDINATOR})
TROUBLES = {
    LOADING: "its coordinator is loading",
    NOT_AVAILABLE: "it has no coordinator at the moment",
    NOT_COORDINATOR: "its coordinator is moving",
}


def find(cluster: Cluster, kind: int, internal_ids: Sequence[str]) -> dict[str, int]:
    """Internal id -> broker number; missing where there is no coordinator at the moment.

    Raises `Unavailable` when no broker answers.
    """
    if not internal_ids:
        return {}
    wanted = list(internal_ids)
    answer = first_answer(
        targets(cluster, CLUSTER_USER).values(),
        lambda: FindCoordinatorRequest(key_type=kind, coordinator_keys=wanted, version=FIND_COORDINATOR_VERSION),
    )
    return {coordinator.key: coordinator.node_id for coordinator in answer.coordinators if not coordinator.error_code}


def of_instance(cluster: Cluster, instance_id: str, kind: int, ids: Sequence[str]) -> dict[str, int]:
    """The tenant's id -> broker number."""
    internal = {internal_scoped(instance_id, item): item for item in ids}
    return {internal[key]: number for key, number in find(cluster, kind, list(internal)).items() if key in internal}


def by_broker(ids: Mapping[str, int]) -> dict[int, list[str]]:
    """Broker number -> what it coordinates."""
    result: dict[int, list[str]] = {}
    for item, number in sorted(ids.items()):
        result.setdefault(number, []).append(item)
    return result


def ask_coordinator(
    instance_id: str,
    kind: int,
    name: str,
    make: Callable[[], Any],
    error_of: Callable[[Any], int],
    *,
    passing: frozenset[int] = PASSING,
) -> Any:
    """The answer of the coordinator of one id, as the instance's owner, found and asked again while it moves.

    `error_of` reads the error that concerns the coordinator itself. Raises what is left when patience ends.
    """
    cluster = cluster_of(instance_id)
    return ask_until_complete(
        cluster,
        targets(cluster, instance_id),
        kind,
        internal_scoped(instance_id, name),
        make,
        error_of,
        passing=passing,
    )


def ask_until_complete(
    cluster: Cluster,
    asked: Mapping[int, Target],
    kind: int,
    internal_id: str,
    make: Callable[[], Any],
    error_of: Callable[[Any], int],
    *,
    passing: frozenset[int] = PASSING,
) -> Any:
    """As `ask_coordinator`, entering as whoever `asked` says.

    Raises `OutcomeUnknown` when patience ends and a coordinator that has not answered may have the request.
    """
    ends_s = time.monotonic() + COORDINATOR_PATIENCE_S
    error_code = NOT_AVAILABLE
    may_be_done = False
    while True:
        target = asked.get(_coordinator(cluster, kind, internal_id, may_be_done))
        if target is not None:
            result = scatter([(target, make())], is_write=True)
            may_be_done = may_be_done or result.may_be_done
            if result.answers:
                answer = result.answers[0][1]
                error_code = error_of(answer)
                if error_code not in passing:
                    return answer
        if time.monotonic() >= ends_s:
            break
        time.sleep(COORDINATOR_RETRY_S)
    if may_be_done:
        raise OutcomeUnknown
    if error_code in TROUBLES:
        raise Unavailable(f"Not at the moment: {TROUBLES[error_code]}.", retry_after_s=1)
    require_ok(error_code)
    raise AssertionError("an answer that is no error would have been returned")


def _coordinator(cluster: Cluster, kind: int, internal_id: str, may_be_done: bool) -> int:
    """The broker's number, -1 where there is none. Raises `OutcomeUnknown` or `Unavailable` when no broker answers."""
    try:
        return find(cluster, kind, [internal_id]).get(internal_id, -1)
    except Unavailable as error:
        if may_be_done:
            raise OutcomeUnknown from error
        raise

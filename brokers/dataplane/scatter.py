"""Sends requests to several brokers concurrently, with one deadline. Results name the brokers that did not respond.

Addresses are read in the caller's thread (rows belong to its transaction); the threads here only wait on sockets.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from brokers.choices import WantedState
from brokers.contract.process_identity import ProcessIdentity
from brokers.dataplane.admin_client import cluster_of, links, require_served
from brokers.dataplane.link import CLIENT_ID, Link, LinkDown, LinkTimeout
from brokers.dataplane.unresponsive_brokers import unresponsive_brokers
from brokers.limits import SCATTER_DEADLINE_S, SCATTER_HEDGE_S, SCATTER_THREADS_PER_BROKER, SILENT_PATIENCE_S
from brokers.models import Broker, Cluster
from instances.interfaces import BrokerUnresponsive
from tenants.errors import Unavailable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Internal listener of a broker, and the identity for requests to it.

    The control secret authenticates this process if it has no certificate; it is never shown.
    """

    number: int
    address: tuple[str, int]
    cluster_id: str
    username: str
    secret: str
    certified_as: ProcessIdentity | None = None
    client_id: str = CLIENT_ID
    cluster: Cluster | None = None

    def __repr__(self) -> str:
        return f"Target({self.number}, {self.username})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterResult:
    """Pairs (broker number, response) in the order of the requests, and the brokers that did not respond.

    `may_be_executed` is True if one of these may have received its request. `by_request` has an entry for each request,
    None without a response.
    """

    responses: tuple[tuple[int, Any], ...]
    silent: tuple[BrokerUnresponsive, ...]
    may_be_executed: bool = False
    by_request: tuple[Any, ...] = ()


@cache
def _threads(_pid: int, _address: tuple[str, int]) -> ThreadPoolExecutor:
    """Returns the thread pool for one broker; in a common pool, a broker that hangs would block all threads."""
    return ThreadPoolExecutor(max_workers=SCATTER_THREADS_PER_BROKER, thread_name_prefix="scatter")


def targets(cluster: Cluster, username: str, client_id: str = CLIENT_ID) -> dict[int, Target]:
    """Returns every broker of a cluster that should run, by number."""
    secret = cluster.read_control_secret()
    rows = Broker.objects.filter(cluster=cluster, removed_at=None, wanted=WantedState.RUNNING)
    return {
        row.number: Target(
            number=row.number,
            address=row.internal_address,
            cluster_id=cluster.pk,
            username=username,
            secret=secret,
            certified_as=row.certified_as,
            client_id=client_id,
            cluster=cluster,
        )
        for row in rows.select_related("host").order_by("number")
    }


def scatter(
    requests: Sequence[tuple[Target, Any]], *, deadline_s: float = SCATTER_DEADLINE_S, is_write: bool = False
) -> ScatterResult:
    """Sends each request to its target and returns the responses within the deadline. Targets may repeat.

    For reads, a recently unresponsive broker gets less time, so that it does not delay the other responses each time.
    """
    return begin_scatter(requests, deadline_s=deadline_s, is_write=is_write)()


def begin_scatter(
    requests: Sequence[tuple[Target, Any]], *, deadline_s: float = SCATTER_DEADLINE_S, is_write: bool = False
) -> Callable[[], ScatterResult]:
    """Sends the requests of `scatter`, and returns a function that waits for the responses."""
    suspected = {
        target.number for target, _ in requests if not is_write and unresponsive_brokers.is_unresponsive(target.address)
    }
    in_flight = [(target, _submit(target, request, deadline_s)) for target, request in requests]
    return partial(_await_responses, in_flight, suspected, time.monotonic(), deadline_s)


def _await_responses(
    in_flight: Sequence[tuple[Target, Future[Any]]], suspected: Collection[int], started_s: float, deadline_s: float
) -> ScatterResult:
    for is_suspected, patience_s in ((False, deadline_s), (True, SILENT_PATIENCE_S)):
        remaining_s = max(0.0, started_s + patience_s - time.monotonic())
        wait([future for target, future in in_flight if (target.number in suspected) is is_suspected], remaining_s)
    by_request: list[Any] = []
    silent: dict[int, BrokerUnresponsive] = {}
    may_be_executed = False
    for target, future in in_flight:
        by_request.append(response := _response_or_none(target, future))
        if response is None:
            may_be_executed = may_be_executed or _was_sent(future)
            silent[target.number] = BrokerUnresponsive(broker_id=target.number, reason="does not answer")
    pairs = zip(in_flight, by_request, strict=True)
    return ScatterResult(
        responses=tuple((target.number, response) for (target, _), response in pairs if response is not None),
        silent=tuple(silent.values()),
        may_be_executed=may_be_executed,
        by_request=tuple(by_request),
    )


def first_response(
    candidates: Iterable[Target], new_request: Callable[[], Any], *, deadline_s: float = SCATTER_DEADLINE_S
) -> Any:
    """Returns the first response. If a broker takes longer than `SCATTER_HEDGE_S`, the next one is queried as well.

    `new_request` creates a new request each time. Raises `Unavailable` if no broker answers within the deadline.
    """
    (response,) = first_responses(candidates, [new_request], deadline_s=deadline_s)
    return response


def first_responses(
    candidates: Iterable[Target],
    new_requests: Sequence[Callable[[], Any]],
    *,
    deadline_s: float = SCATTER_DEADLINE_S,
) -> list[Any]:
    """Returns the first response to each of several requests, which are sent at once; otherwise as `first_response`."""
    end_s = time.monotonic() + deadline_s
    ordered_targets = sorted(candidates, key=lambda target: unresponsive_brokers.is_unresponsive(target.address))
    queries = [_Query(new_request, ordered_targets, deadline_s) for new_request in new_requests]
    return [query.response(end_s) for query in queries]


class _Query:
    """Request that any of several brokers may answer: sent to the first one, and to others if the response is late."""

    def __init__(self, new_request: Callable[[], Any], targets: Sequence[Target], deadline_s: float) -> None:
        self._new_request = new_request
        self._untried = deque(targets)
        self._deadline_s = deadline_s
        self._in_flight: dict[Future[Any], Target] = {}
        self._try_next()

    def _try_next(self) -> None:
        if self._untried:
            target = self._untried.popleft()
            self._in_flight[_submit(target, self._new_request(), self._deadline_s)] = target

    def response(self, end_s: float) -> Any:
        """Returns the first response. Raises `Unavailable` if there is none until `end_s`."""
        while self._in_flight and (remaining_s := end_s - time.monotonic()) > 0:
            timeout_s = min(remaining_s, SCATTER_HEDGE_S) if self._untried else remaining_s
            done, _ = wait(self._in_flight, timeout=timeout_s, return_when=FIRST_COMPLETED)
            for future in done:
                response = _response_or_none(self._in_flight.pop(future), future)
                if response is not None:
                    for other in self._in_flight:
                        other.cancel()
                    return response
            self._try_next()
        raise Unavailable("No broker of the instance answers at the moment. Nothing is lost.", retry_after_s=1)


def send_to_any_broker(instance_id: str, new_request: Callable[[], Any]) -> Any:
    """Sends a read request to any broker of an instance as the instance's owner.

    Raises `Conflict` while the instance has no cluster, and `Unavailable`.
    """
    (response,) = send_all_to_any_broker(instance_id, [new_request])
    return response


def send_all_to_any_broker(instance_id: str, new_requests: Sequence[Callable[[], Any]]) -> list[Any]:
    """Sends several read requests at once, each as `send_to_any_broker` does."""
    return first_responses(targets(cluster_of(instance_id), instance_id).values(), new_requests)


def pair_with_targets(targets_by_broker: Mapping[int, Target], requests: Mapping[int, Any]) -> list[tuple[Target, Any]]:
    """Returns (target, request) for each request in `requests`, by broker number, if the broker has a target."""
    return [
        (targets_by_broker[number], request)
        for number, request in sorted(requests.items())
        if number in targets_by_broker
    ]


def _submit(target: Target, request: Any, timeout_s: float) -> Future[Any]:
    if target.cluster is not None:
        require_served(target.cluster, target.username, request)
    return _threads(os.getpid(), target.address).submit(_send, target, request, timeout_s)


def _send(target: Target, request: Any, timeout_s: float) -> Any:
    """Sends a request over an idle link, or over a new one if there is none or it has died."""
    key = (target.cluster_id, target.username, target.number, target.client_id)
    idle = links().acquire(key)
    was_sent = False
    if idle is not None and idle.is_alive:
        try:
            return _call_and_release(key, idle, request, timeout_s)
        except LinkTimeout:
            raise
        except LinkDown as error:
            was_sent = error.was_sent
            logger.debug("an idle link to broker %s has died: %s", target.number, error)
    elif idle is not None:
        idle.close()
    try:
        link = Link(target.address, target.username, target.secret, target.certified_as, target.client_id)
        return _call_and_release(key, link, request, timeout_s)
    except LinkDown as error:
        error.was_sent = error.was_sent or was_sent
        raise


def _call_and_release(key: Any, link: Link, request: Any, timeout_s: float) -> Any:
    response = link.call(request, timeout_s=timeout_s)
    if getattr(response, "throttle_time_ms", 0):
        link.close()  # the broker reads no further request on it until the throttle time is over
    else:
        links().release(key, link)
    return response


def _response_or_none(target: Target, future: Future[Any]) -> Any:
    """Returns the response, or None if there is none (yet)."""
    if not future.done():
        future.cancel()  # requests that have not begun must not wait for a thread any longer
        unresponsive_brokers.mark_unresponsive(target.address)
        logger.info("broker %s is late", target.number)
        return None
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, LinkDown):
        raise error
    logger.info("broker %s does not answer: %s", target.number, error)
    return None


def _was_sent(future: Future[Any]) -> bool:
    """True if a broker that did not respond may have the request: it was sent, or its thread is still running."""
    if future.cancelled():
        return False
    error = future.exception() if future.done() else None
    return error.was_sent if isinstance(error, LinkDown) else True

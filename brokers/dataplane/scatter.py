"""Concurrent requests to several brokers with one deadline; brokers without an answer are part of the result.

Addresses are read in the caller's thread (rows belong to its transaction); the threads here only wait on sockets.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Any

from brokers.choices import WantedState
from brokers.contract.process_identity import ProcessIdentity
from brokers.dataplane.admin_client import cluster_of, links
from brokers.dataplane.link import CLIENT_ID, Link, LinkDown, LinkLate
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

    def __repr__(self) -> str:
        return f"Target({self.number}, {self.username})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scattered:
    """Pairs (broker number, answer) in the order of the requests, and the brokers that did not answer.

    `may_be_done` is True if one of these may have received its request.
    """

    answers: tuple[tuple[int, Any], ...]
    silent: tuple[BrokerUnresponsive, ...]
    may_be_done: bool = False


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
        )
        for row in rows.select_related("host").order_by("number")
    }


def scatter(
    asked: Sequence[tuple[Target, Any]], *, deadline_s: float = SCATTER_DEADLINE_S, is_write: bool = False
) -> Scattered:
    """Sends one request to each target (which may repeat) and returns the answers within the deadline.

    A recently silent broker gets less time for reads, so that the other answers do not wait for it each time.
    """
    suspected = {target.number for target, _ in asked if not is_write and unresponsive_brokers.holds(target.address)}
    sent = [(target, _submit(target, request, deadline_s)) for target, request in asked]
    begun_s = time.monotonic()
    wait([future for target, future in sent if target.number not in suspected], timeout=deadline_s)
    left_s = max(0.0, begun_s + SILENT_PATIENCE_S - time.monotonic())
    wait([future for target, future in sent if target.number in suspected], timeout=left_s)
    answers: list[tuple[int, Any]] = []
    silent: dict[int, BrokerUnresponsive] = {}
    may_be_done = False
    for target, future in sent:
        answer = _outcome(target, future)
        if answer is None:
            may_be_done = may_be_done or _was_sent(future)
            silent[target.number] = BrokerUnresponsive(broker_id=target.number, reason="does not answer")
        else:
            answers.append((target.number, answer))
    return Scattered(answers=tuple(answers), silent=tuple(silent.values()), may_be_done=may_be_done)


def first_answer(asked: Iterable[Target], make: Callable[[], Any], *, deadline_s: float = SCATTER_DEADLINE_S) -> Any:
    """Returns the first answer: if a broker takes longer than `SCATTER_HEDGE_S`, the next one is asked as well.

    `make` creates a new request each time. Raises `Unavailable` if no broker answers within the deadline.
    """
    ends_s = time.monotonic() + deadline_s
    open_: dict[Future[Any], Target] = {}
    waiting = sorted(asked, key=lambda target: unresponsive_brokers.holds(target.address))
    while waiting or open_:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            break
        if waiting:
            target = waiting.pop(0)
            open_[_submit(target, make(), deadline_s)] = target
        patience_s = min(left_s, SCATTER_HEDGE_S) if waiting else left_s
        done, _ = wait(open_, timeout=patience_s, return_when=FIRST_COMPLETED)
        for future in done:
            answer = _outcome(open_.pop(future), future)
            if answer is not None:
                for late in open_:
                    late.cancel()
                return answer
    raise Unavailable("No broker of the instance answers at the moment. Nothing is lost.", retry_after_s=1)


def ask_any(instance_id: str, make: Callable[[], Any]) -> Any:
    """Sends a read request to any broker of an instance as the instance's owner.

    Raises `Conflict` while the instance has no cluster, and `Unavailable`.
    """
    return first_answer(targets(cluster_of(instance_id), instance_id).values(), make)


def by_target(found: Mapping[int, Target], wanted: Mapping[int, Any]) -> list[tuple[Target, Any]]:
    """Returns (target, request) for each request in `wanted`, by broker number, if the broker has a target."""
    return [(found[number], request) for number, request in sorted(wanted.items()) if number in found]


def _submit(target: Target, request: Any, timeout_s: float) -> Future[Any]:
    return _threads(os.getpid(), target.address).submit(_ask, target, request, timeout_s)


def _ask(target: Target, request: Any, timeout_s: float) -> Any:
    """Sends a request over an idle link, or over a new one if there is none or it has died."""
    key = (target.cluster_id, target.username, target.number, target.client_id)
    idle = links().take(key)
    was_sent = False
    if idle is not None and idle.is_alive:
        try:
            return _asked(key, idle, request, timeout_s)
        except LinkLate:
            raise
        except LinkDown as error:
            was_sent = error.was_sent
            logger.debug("an idle link to broker %s has died: %s", target.number, error)
    elif idle is not None:
        idle.close()
    try:
        link = Link(target.address, target.username, target.secret, target.certified_as, target.client_id)
        return _asked(key, link, request, timeout_s)
    except LinkDown as error:
        error.was_sent = error.was_sent or was_sent
        raise


def _asked(key: Any, link: Link, request: Any, timeout_s: float) -> Any:
    answer = link.call(request, timeout_s=timeout_s)
    if getattr(answer, "throttle_time_ms", 0):
        link.close()  # the broker reads no further request on it until the throttle time is over
    else:
        links().give_back(key, link)
    return answer


def _outcome(target: Target, future: Future[Any]) -> Any:
    """Returns the answer, or None without one (yet)."""
    if not future.done():
        future.cancel()  # requests that have not begun must not wait for a thread any longer
        unresponsive_brokers.note(target.address)
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
    """True if a broker without answer may have the request: it was sent, or its thread is still running."""
    if future.cancelled():
        return False
    error = future.exception() if future.done() else None
    return error.was_sent if isinstance(error, LinkDown) else True

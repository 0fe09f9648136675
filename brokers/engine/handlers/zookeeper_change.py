"""Changes in ZooKeeper by handlers: made in the turn of their instance, and charged to it and to the client.

The instance as a whole has a rate for everything it changes in ZooKeeper (`throttling.request_time`), which protects
the cluster. Its owner may set another one for the partitions that a client creates and deletes
(`controller_mutation_rate`, QUO-40…43, KIP-599). That one is charged where the client's request arrives, since any
broker administers topics. The broker that clients see as controller has nearly all of the limit, since clients send
such requests there; the other brokers of the instance share the rest evenly, so that all parts add up to the limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from brokers.contract.documents import BROKER_SCOPE
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.handlers.context import RequestContext
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.throttling.charging import CONTROLLER_MUTATION_RATE, Limiter

# Maximum wait of a change for its turn, which is below the request timeout of clients.
CHANGE_WAIT_S_MAX: Final = 20.0
# Number of partitions without leaders that an instance may have created through this broker. Further ones wait, which
# bounds the work of controller and brokers before another instance's changes.
PARTITIONS_UNFINISHED_MAX: Final = 200
# Maximum wait until the metadata has a change. The change is written already, so the response does not wait longer.
APPLIED_S_MAX: Final = 5.0
# First versions whose clients know THROTTLING_QUOTA_EXCEEDED; requests of older versions are served, and delayed
# afterwards.
STRICT_FROM: Final[Mapping[int, int]] = {
    int(ApiKey.CREATE_TOPICS): 6,
    int(ApiKey.CREATE_PARTITIONS): 3,
    int(ApiKey.DELETE_TOPICS): 5,
}
EXCEEDED: Final = "The throttling quota has been exceeded."
# Part of a limit that the broker has which clients see as controller.
CONTROLLER_SHARE: Final = 0.9


@asynccontextmanager
async def zookeeper_change(
    context: RequestContext, cost: int, *, partitions: int = 0, wait_s: float = CHANGE_WAIT_S_MAX
) -> AsyncIterator[None]:
    """Waits for the instance's turn, which lasts as long as the block, and charges a change of this cost
    (`throttling.request_time`). `partitions` is the number of partitions that the change creates. Changes of the
    cluster itself do not wait.

    Raises:
        TooManyChanges: no turn within `wait_s`. Nothing is charged, and nothing may be changed.
    """
    instance_id, services = context.view.instance_id, context.services
    if instance_id is None:
        yield
        return
    rate, now_ms = services.accounting.accountings.get_or_create(instance_id).change_rate, services.clock.monotonic_ms
    creations = services.metadata.store.in_flight_creations

    async def wait_for_leaders(timeout_s: float) -> None:
        unfinished_max = max(PARTITIONS_UNFINISHED_MAX - partitions, 0)
        await services.metadata.current.wait_until(
            lambda _: creations.partitions(instance_id) <= unfinished_max, timeout_s
        )

    deadline_ms = now_ms() + round(min(wait_s, CHANGE_WAIT_S_MAX) * 1000)
    async with services.metadata.change_turns.turn(
        instance_id, rate, now_ms=now_ms, deadline_ms=deadline_ms, until_ready=wait_for_leaders if partitions else None
    ):
        rate.charge(cost, now_ms())
        context.has_changed = True
        yield


async def wait_until_applied(current: CurrentImage, changes: Iterable[int | None]) -> None:
    """Waits until the metadata has these config changes; None stands for a change that had nothing to write."""
    latest = max((change for change in changes if change is not None), default=None)
    if latest is not None:
        await current.wait_until(lambda image: image.config_change >= latest, APPLIED_S_MAX)


def try_charge_mutation(context: RequestContext, partitions: int) -> bool:
    """Charges the client for a change of this number of partitions. Returns False, and charges nothing, if the client
    is in debt and its version knows the rejection (`STRICT_FROM`). The response has the delay if the request is
    rejected or of an older version. An accepted request of a strict version is not delayed, as in Apache Kafka: the
    next one may be rejected.
    """
    limiter = _mutation_limiter(context)
    if limiter is None or limiter.bucket is None:
        return True
    now_ms = context.services.clock.monotonic_ms()
    strict_from = STRICT_FROM.get(context.api_key)
    is_strict = strict_from is not None and context.version >= strict_from
    is_refused = is_strict and limiter.bucket.is_exhausted(now_ms)
    if not is_refused:
        limiter.bucket.charge(partitions, now_ms)
    if is_refused or not is_strict:
        context.mutation_limiter = limiter
    return not is_refused


def mutation_wait_ms(context: RequestContext) -> int:
    """Returns the delay of the client for what was charged, 0 without one."""
    limiter = context.mutation_limiter
    if limiter is None or limiter.bucket is None:
        return 0
    return limiter.bucket.wait_ms(context.services.clock.monotonic_ms())


def part_of_mutation_limit(broker_id: int, controller_id: int, brokers: Collection[int]) -> float:
    """Returns the part of a limit, from 0 to 1, that one of an instance's `brokers` has. If the controller is none of
    them, clients see the one with the lowest id as controller (CKA-6).
    """
    if len(brokers) <= 1:
        return 1.0
    visible_controller = controller_id if controller_id in brokers else min(brokers)
    return CONTROLLER_SHARE if broker_id == visible_controller else (1.0 - CONTROLLER_SHARE) / (len(brokers) - 1)


def _mutation_limiter(context: RequestContext) -> Limiter | None:
    """Returns the client's limiter, None without a limit. Changes by the console are not limited."""
    services, instance = context.services, context.view.instance
    if instance is None or context.view.internal:
        return None
    # A long call outlives its view.
    image = services.metadata.current.image
    limits = image.quotas.of_instance(instance.id)
    if not limits and services.accounting.accountings.callback is None:
        return None
    part = 1.0
    if instance.document.quota_scope != BROKER_SCOPE:
        brokers = instance.document.serving & image.brokers.keys()
        part = part_of_mutation_limit(services.broker_id, image.controller_id, brokers)
    user, now_ms = context.view.principal.user, services.clock.monotonic_ms()
    return services.accounting.accountings.get_or_create(instance.id).client_quotas.limiter(
        limits, CONTROLLER_MUTATION_RATE, user, context.client_id, now_ms, part
    )

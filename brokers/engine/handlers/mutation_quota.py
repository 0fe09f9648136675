"""How fast a client may create and delete partitions (`controller_mutation_rate`, QUO-40…43, KIP-599).

It is charged where the client's request arrives, since any broker administers topics. Of a limit that holds over all
brokers of the instance, the one that clients are shown as controller has nearly all, since clients send such requests
there. The others share the rest evenly, so that all parts together are the limit.

Beside it the instance as a whole has a rate of its own (`throttling.change_rate`), for everything it changes in
ZooKeeper: that one protects the cluster, this one is the tenant's wish.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from brokers.contract.documents import BROKER_SCOPE
from brokers.engine.handlers.context import Call
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.throttling.charging import CONTROLLER_MUTATION_RATE, Limiter

# Versions whose clients know what it means to be refused by a rate; others are done, and wait afterwards.
STRICT_FROM: Final[Mapping[int, int]] = {
    int(ApiKey.CREATE_TOPICS): 6,
    int(ApiKey.CREATE_PARTITIONS): 3,
    int(ApiKey.DELETE_TOPICS): 5,
}
EXCEEDED: Final = "The throttling quota has been exceeded."
CONTROLLERS_PART: Final = 0.9


def take(call: Call, partitions: int) -> bool:
    """Charges the client for a change of so many partitions. False: it owes for those before, and its version is one
    that is refused; then nothing is charged. Who is refused is told how long to wait, and so is who would never be; a
    client that is refused later need not wait now, as in Apache Kafka.
    """
    limiter = _limiter(call)
    if limiter is None or limiter.bucket is None:
        return True
    now_ms = call.services.clock.monotonic_ms()
    strict_from = STRICT_FROM.get(call.api_key)
    is_strict = strict_from is not None and call.version >= strict_from
    is_refused = is_strict and limiter.bucket.is_exhausted(now_ms)
    if not is_refused:
        limiter.bucket.charge(partitions, now_ms)
    if is_refused or not is_strict:
        call.mutation_limiter = limiter
    return not is_refused


def wait_ms(call: Call) -> int:
    """How long the client is to wait for what was charged to it, if it is to."""
    limiter = call.mutation_limiter
    if limiter is None or limiter.bucket is None:
        return 0
    return limiter.bucket.wait_ms(call.services.clock.monotonic_ms())


def part_of_limit(broker_id: int, controller_id: int, brokers: Collection[int]) -> float:
    """What one of an instance's `brokers` has of a limit over all of them. Where the controller is none of them, the
    first one stands for it (CKA-6).
    """
    if len(brokers) <= 1:
        return 1.0
    shown = controller_id if controller_id in brokers else min(brokers)
    return CONTROLLERS_PART if broker_id == shown else (1.0 - CONTROLLERS_PART) / (len(brokers) - 1)


def _limiter(call: Call) -> Limiter | None:
    """None: nobody limits it. What the console does for an instance is not held back."""
    services, instance = call.services, call.view.instance
    if instance is None or call.view.internal:
        return None
    # A long call outlives its view.
    image = services.metadata.current.image
    limits = image.quotas.of_instance(instance.id)
    if not limits and services.accounting.accountings.callback is None:
        return None
    part = 1.0
    if instance.document.quota_scope != BROKER_SCOPE:
        brokers = instance.document.serving & image.brokers.keys()
        part = part_of_limit(services.broker_id, image.controller_id, brokers)
    user, now_ms = call.view.principal.user, services.clock.monotonic_ms()
    return services.accounting.accountings.of(instance.id).client_quotas.limiter(
        limits, CONTROLLER_MUTATION_RATE, user, call.client_id, now_ms, part
    )

"""Changes in ZooKeeper by handlers: made in the turn of their instance, and charged to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from brokers.engine.cluster.current import CurrentImage
from brokers.engine.handlers.context import RequestContext

# Maximum wait of a change for its turn, which is below the request timeout of clients.
CHANGE_WAIT_S_MAX: Final = 20.0
# Number of partitions without leaders that an instance may have created through this broker. Further ones wait, which
# bounds the work of controller and brokers before another instance's changes.
PARTITIONS_UNFINISHED_MAX: Final = 200
# Maximum wait until the metadata has a change. The change is written already, so the response does not wait longer.
APPLIED_S_MAX: Final = 5.0


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
    rate, now_ms = services.accounting.accountings.of(instance_id).change_rate, services.clock.monotonic_ms
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

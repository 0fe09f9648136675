"""Holds the latest image; whoever must act on a change subscribes, whoever must wait for one waits here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from brokers.engine.cluster.image import ClusterImage

log = structlog.get_logger(__name__)

Subscriber = Callable[[ClusterImage, ClusterImage], None]


class _Subscription:
    """`seen` is the last image the subscriber took without failing."""

    __slots__ = ("seen", "subscriber")

    def __init__(self, subscriber: Subscriber, seen: ClusterImage) -> None:
        self.subscriber = subscriber
        self.seen = seen


class CurrentImage:
    """`image` is replaced, never changed. Subscribers get (before, after) on the loop, in order, and must not block.

    One that fails keeps nobody else from the image: what a tenant wrote and one part of the broker cannot take must not
    stop the others' broker. It is given the next image with all that changed since the last one it took
    (decision 118). `failures` counts.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.failures = 0
        self._subscriptions: list[_Subscription] = []
        self._waiting: dict[asyncio.Future[None], Callable[[ClusterImage], bool]] = {}

    def tenant_of(self, instance_id: str) -> str:
        """Returns the id of an instance's tenant; an unknown instance is its own tenant."""
        instance = self.image.instances.get(instance_id)
        return instance_id if instance is None else instance.document.tenant_of(instance_id)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscriptions.append(_Subscription(subscriber, self.image))

    def publish(self, image: ClusterImage) -> None:
        self.image = image
        for subscription in self._subscriptions:
            try:
                subscription.subscriber(subscription.seen, image)
            except Exception as failure:
                self.failures += 1
                name = getattr(subscription.subscriber, "__qualname__", repr(subscription.subscriber))
                log.error(
                    "image_not_taken", subscriber=name, reason=f"{type(failure).__name__}: {failure}", exc_info=True
                )
            else:
                subscription.seen = image
        for future, holds in list(self._waiting.items()):
            if not future.done() and holds(image):
                future.set_result(None)

    async def wait_until(self, holds: Callable[[ClusterImage], bool], timeout_s: float) -> bool:
        """Whether an image for which `holds` is true came in time; the present one counts."""
        if holds(self.image):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = holds
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True

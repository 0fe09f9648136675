"""The latest cluster metadata image, with subscriptions to changes and waits for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from brokers.engine.cluster.image import ClusterImage

log = structlog.get_logger(__name__)

Subscriber = Callable[[ClusterImage, ClusterImage], None]


class _Subscription:
    """A subscription; `last_handled` is the last image that the subscriber handled without an exception."""

    __slots__ = ("last_handled", "subscriber")

    def __init__(self, subscriber: Subscriber, last_handled: ClusterImage) -> None:
        self.subscriber = subscriber
        self.last_handled = last_handled


class CurrentImage:
    """The latest image, which is replaced and never changed.

    Subscribers are called with (before, after) on the event loop, in order, and must not block. An exception in one
    subscriber does not prevent the others from getting the image: a tenant's data that one part of the broker cannot
    handle must not stop the broker for other tenants. The failed subscriber gets the next image with all changes since
    the last one that it handled (decision 118). `failures` counts such exceptions.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.failures = 0
        self._subscriptions: list[_Subscription] = []
        self._condition_by_future: dict[asyncio.Future[None], Callable[[ClusterImage], bool]] = {}

    def tenant_of(self, instance_id: str) -> str:
        """Returns the id of an instance's tenant; an unknown instance is its own tenant."""
        instance = self.image.instances.get(instance_id)
        return instance_id if instance is None else instance.document.tenant_of(instance_id)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls `subscriber` for each image that is published from now on."""
        self._subscriptions.append(_Subscription(subscriber, self.image))

    def publish(self, image: ClusterImage) -> None:
        """Replaces the image, calls the subscribers, and ends the waits whose condition it satisfies."""
        self.image = image
        for subscription in self._subscriptions:
            try:
                subscription.subscriber(subscription.last_handled, image)
            except Exception as failure:
                self.failures += 1
                name = getattr(subscription.subscriber, "__qualname__", repr(subscription.subscriber))
                log.error(
                    "image_not_taken", subscriber=name, reason=f"{type(failure).__name__}: {failure}", exc_info=True
                )
            else:
                subscription.last_handled = image
        for future, condition in list(self._condition_by_future.items()):
            if not future.done() and condition(image):
                future.set_result(None)

    async def wait_until(self, condition: Callable[[ClusterImage], bool], timeout_s: float) -> bool:
        """Waits for an image that satisfies `condition`, including the current one; returns False after the timeout."""
        if condition(self.image):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._condition_by_future[future] = condition
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            del self._condition_by_future[future]
        return True

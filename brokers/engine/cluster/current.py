"""Holds the latest image; whoever must act on a change subscribes, whoever must wait for one waits here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from brokers.engine.cluster.image import ClusterImage

Subscriber = Callable[[ClusterImage, ClusterImage], None]


class CurrentImage:
    """`image` is replaced, never changed. Subscribers get (before, after) on the loop, in order, and must not block."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._subscribers: list[Subscriber] = []
        self._waiting: dict[asyncio.Future[None], Callable[[ClusterImage], bool]] = {}

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def publish(self, image: ClusterImage) -> None:
        before, self.image = self.image, image
        for subscriber in self._subscribers:
            subscriber(before, image)
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

"""Read your writes: who changed something sees it in the next answer of the broker that was asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from brokers.engine.cluster.current import CurrentImage

# The change is written and will be seen; a client must not hang on an image that is late.
SEEN_S_MAX: Final = 5.0


async def until_seen(current: CurrentImage, changes: Iterable[int | None]) -> None:
    """Waits until the image holds these config changes; None stands for one that had nothing to write."""
    latest = max((change for change in changes if change is not None), default=None)
    if latest is not None:
        await current.wait_until(lambda image: image.config_change >= latest, SEEN_S_MAX)

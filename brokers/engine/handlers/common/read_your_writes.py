"""Read your writes: a client sees its change in the next response of the same broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from brokers.engine.cluster.current import CurrentImage

# Maximum wait for the metadata to show a change. The change is written and a client must not hang on late metadata.
SEEN_S_MAX: Final = 5.0


async def until_seen(current: CurrentImage, changes: Iterable[int | None]) -> None:
    """Waits until the metadata has these config changes; None stands for a change that had nothing to write."""
    latest = max((change for change in changes if change is not None), default=None)
    if latest is not None:
        await current.wait_until(lambda image: image.config_change >= latest, SEEN_S_MAX)

"""Operations of IncrementalAlterConfigs, for any kind of setting."""

from __future__ import annotations

from typing import Final

from brokers.engine.protocol.messages.configs import IncrementalAlterableConfig

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


def listed(present: str, change: IncrementalAlterableConfig) -> str:
    """Returns a list after elements were appended to it or subtracted from it."""
    words = [word for word in present.split(",") if word]
    given = [word.strip() for word in (change.value or "").split(",") if word.strip()]
    if change.config_operation == APPEND:
        words += [word for word in given if word not in words]
    else:
        words = [word for word in words if word not in given]
    return ",".join(words)

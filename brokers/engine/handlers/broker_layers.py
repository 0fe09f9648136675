"""What is set for a broker, by who set it. What each value means: `configs.broker_settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """`own` goes before `of_all`, both before `static`, with which the broker was started. The first two hold usable
    values only.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    of_all: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    @property
    def effective(self) -> dict[str, str]:
        """What is in force, defaults aside."""
        return {**self.static, **self.of_all, **self.own}

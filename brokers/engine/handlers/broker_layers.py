"""Settings of a broker in layers, by their source. `configs.broker_settings` has the meaning of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """Layers of settings: `own` overrides `of_all`, and both override `static`, with which the broker was started. The
    first two hold valid values only.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    of_all: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    @property
    def effective(self) -> dict[str, str]:
        """Returns the settings in effect, without defaults."""
        return {**self.static, **self.of_all, **self.own}

"""Counters of the network since the start of the broker."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Numbers of connections and faults. `refused` is by cause (`admission`), `ended` by reason (`endings`)."""

    accepted: int = 0
    paced: int = 0
    malformed: int = 0
    faults: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    def refuse(self, cause: str) -> None:
        self.refused[cause] = self.refused.get(cause, 0) + 1

    def end(self, reason: str) -> None:
        self.ended[reason] = self.ended.get(reason, 0) + 1

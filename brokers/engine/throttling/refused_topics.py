"""Automatic topic creations that were refused, with the reason, for the instance's owner.

Most clients do not show the error but repeat their request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NAMES_MAX: Final = 20
# A refusal is shown for this long after its last request.
SHOWN_MS: Final = 3_600_000


@dataclass(slots=True)
class _Refusal:
    reason: str
    last_ms: int
    count: int = 0


class RefusedTopics:
    """Refused topic names of one instance. When it is full the name that was requested longest ago is dropped."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, _Refusal] = {}

    def record(self, name: str, reason: str, now_ms: int) -> bool:
        """Records a refusal; returns True if the name was not refused recently for the same reason."""
        refusal = self._by_name.pop(name, None)
        is_new = refusal is None or refusal.reason != reason or now_ms - refusal.last_ms > SHOWN_MS
        if is_new or refusal is None:
            refusal = _Refusal(reason, now_ms)
        refusal.last_ms = now_ms
        refusal.count += 1
        if len(self._by_name) >= NAMES_MAX:
            del self._by_name[next(iter(self._by_name))]
        self._by_name[name] = refusal
        return is_new

    def as_json(self, now_ms: int) -> list[dict[str, str | int]]:
        """Returns the refusals for the admin port, the latest first."""
        return [
            {"name": name, "reason": refusal.reason, "count": refusal.count, "last_ms": refusal.last_ms}
            for name, refusal in reversed(self._by_name.items())
            if now_ms - refusal.last_ms <= SHOWN_MS
        ]

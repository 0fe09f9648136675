"""Topics that clients wanted to use into being and that could not be made, with the reason, for their instance's owner:
most clients only repeat the question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NAMES_MAX: Final = 20
# What was not asked for so long is told no more.
SHOWN_MS: Final = 3_600_000


@dataclass(slots=True)
class _Refusal:
    reason: str
    last_ms: int
    count: int = 0


class RefusedTopics:
    """Of one instance. When it is full the name that was asked for longest ago makes room."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, _Refusal] = {}

    def note(self, name: str, reason: str, now_ms: int) -> bool:
        """Whether this is news: the name was not refused lately, or for another reason."""
        known = self._by_name.pop(name, None)
        is_news = known is None or known.reason != reason or now_ms - known.last_ms > SHOWN_MS
        if is_news or known is None:
            known = _Refusal(reason, now_ms)
        known.last_ms = now_ms
        known.count += 1
        if len(self._by_name) >= NAMES_MAX:
            del self._by_name[next(iter(self._by_name))]
        self._by_name[name] = known
        return is_news

    def as_json(self, now_ms: int) -> list[dict[str, str | int]]:
        """As the admin port answers it, the latest first."""
        return [
            {"name": name, "reason": known.reason, "count": known.count, "last_ms": known.last_ms}
            for name, known in reversed(self._by_name.items())
            if now_ms - known.last_ms <= SHOWN_MS
        ]

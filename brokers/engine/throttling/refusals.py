"""Rules by which an instance's produces, connections and authentication attempts are refused or delayed (QUO-50…52),
and automatic topic creations that were refused, with the reason, for the instance's owner: most clients do not show the
error but repeat their request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokers.engine.capacity.room import DISK_SHORT_MESSAGE
from brokers.engine.throttling.charging import Rule
from quotas.addresses import CONNECTION_CREATION_RATE

# The instance has used up the storage that it bought.
STORAGE_RULE: Final = Rule("capacity", "storage", None, None)
# A disk of this broker is nearly full, which is no limit of the instance.
DISK_RULE: Final = Rule("capacity", "disk_space", None, None)
# The instance's owner or an operator has stopped produces.
FROZEN_RULE: Final = Rule("frozen", "frozen", None, None)
# Topics whose automatic creation was refused; each is shown for this long after its last request.
TOPIC_NAMES_MAX: Final = 20
TOPICS_SHOWN_MS: Final = 3_600_000
# Closed at once: the instance or the address has reached its number of connections.
CONNECTION_LIMIT_RULE: Final = Rule("connection_limit", "connection_limit", None, None)
# Accepted later: connections of the instance were opened at a higher rate than a broker accepts.
CONNECTION_RATE_RULE: Final = Rule("connection_rate", "connection_rate", None, None)
# Held unread, then closed: an address has exceeded the rate limit that the instance sets for addresses.
ADDRESS_RATE_RULE: Final = Rule("connection_rate", CONNECTION_CREATION_RATE, None, None)
# Refused unchecked: too many earlier attempts failed.
AUTHENTICATION_RULE: Final = Rule("authentication", "authentication", None, None)


def refusal_rule(state: str, message: str | None) -> Rule:
    """Returns the rule by which a produce was answered with POLICY_VIOLATION.

    `state` is the instance's state, `message` the error message in the response.
    """
    if message == DISK_SHORT_MESSAGE:
        return DISK_RULE
    return FROZEN_RULE if state == "frozen" else STORAGE_RULE


@dataclass(slots=True)
class _RefusedTopic:
    reason: str
    last_ms: int
    count: int = 0


class RefusedTopics:
    """Refused topic names of one instance. When it is full the name that was requested longest ago is dropped."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, _RefusedTopic] = {}

    def record(self, name: str, reason: str, now_ms: int) -> bool:
        """Records a refusal; returns True if the name was not refused recently for the same reason."""
        refusal = self._by_name.pop(name, None)
        is_new = refusal is None or refusal.reason != reason or now_ms - refusal.last_ms > TOPICS_SHOWN_MS
        if is_new or refusal is None:
            refusal = _RefusedTopic(reason, now_ms)
        refusal.last_ms = now_ms
        refusal.count += 1
        if len(self._by_name) >= TOPIC_NAMES_MAX:
            del self._by_name[next(iter(self._by_name))]
        self._by_name[name] = refusal
        return is_new

    def as_json(self, now_ms: int) -> list[dict[str, str | int]]:
        """Returns the refusals for the admin port, the latest first."""
        return [
            {"name": name, "reason": refusal.reason, "count": refusal.count, "last_ms": refusal.last_ms}
            for name, refusal in reversed(self._by_name.items())
            if now_ms - refusal.last_ms <= TOPICS_SHOWN_MS
        ]

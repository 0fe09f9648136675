"""Produces that are refused and not delayed: for the instance's storage, a broker's disk, or in a frozen instance."""

from __future__ import annotations

from typing import Final

from brokers.engine.capacity.disk_space import DISK_SHORT_MESSAGE
from brokers.engine.throttling.charging import Rule

# The instance has used up the storage that it bought.
STORAGE_RULE: Final = Rule("capacity", "storage", None, None)
# A disk of this broker is nearly full, which is nobody's limit.
DISK_RULE: Final = Rule("capacity", "disk_space", None, None)
# Its owner, or an operator, has stopped what is written.
FROZEN_RULE: Final = Rule("frozen", "frozen", None, None)


def refusal_rule(state: str, message: str | None) -> Rule:
    """Why a produce was answered POLICY_VIOLATION: `state` is the instance's, `message` what the producer is told."""
    if message == DISK_SHORT_MESSAGE:
        return DISK_RULE
    return FROZEN_RULE if state == "frozen" else STORAGE_RULE

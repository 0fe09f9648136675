"""Rules by which produces are refused: full storage of the instance, a full disk of a broker, a frozen instance."""

from __future__ import annotations

from typing import Final

from brokers.engine.capacity.room import DISK_SHORT_MESSAGE
from brokers.engine.throttling.charging import Rule

# The instance has used up the storage that it bought.
STORAGE_RULE: Final = Rule("capacity", "storage", None, None)
# A disk of this broker is nearly full, which is no limit of the instance.
DISK_RULE: Final = Rule("capacity", "disk_space", None, None)
# The instance's owner or an operator has stopped produces.
FROZEN_RULE: Final = Rule("frozen", "frozen", None, None)


def refusal_rule(state: str, message: str | None) -> Rule:
    """Returns the rule by which a produce was answered with POLICY_VIOLATION.

    `state` is the instance's state, `message` the error message in the response.
    """
    if message == DISK_SHORT_MESSAGE:
        return DISK_RULE
    return FROZEN_RULE if state == "frozen" else STORAGE_RULE

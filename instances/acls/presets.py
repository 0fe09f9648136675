"""Access rules that a user gets in one step. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from instances.acls import constants
from instances.acls.interfaces import AclRule

EVERYBODY: Final = "User:*"
# Topics may be created by their first record, and the application chooses the names of transactions and consumer
# groups.
_PRODUCE_CONSUME: Final = (
    (constants.TOPIC, "read"),
    (constants.TOPIC, "write"),
    (constants.TOPIC, "create"),
    (constants.GROUP, "read"),
    (constants.TRANSACTIONAL_ID, "write"),
)


class Preset(StrEnum):
    """Rights that can be given together with a user."""

    NOTHING = "nothing"
    PRODUCE_CONSUME = "produce_consume"


def preset_rules(preset: Preset, principal: str) -> list[AclRule]:
    """Returns the rules that give a principal the rights of a preset on all topics, groups and transactional ids."""
    if preset is Preset.NOTHING:
        return []
    return [
        AclRule(
            resource_type=resource_type,
            resource_name=constants.WILDCARD,
            pattern_type=constants.LITERAL,
            principal=principal,
            host=constants.WILDCARD,
            operation=operation,
            permission=constants.ALLOW,
        )
        for resource_type, operation in _PRODUCE_CONSUME
    ]

"""How far one group of a tenant may grow; `contract.coordinator_limits` has what counts for all of them together. Kafka
has none of these limits; what goes beyond them is refused by name.
"""

from __future__ import annotations

from typing import Final

# Of an internal group id, which is in the key of each of its records. Beyond: INVALID_GROUP_ID.
GROUP_ID_BYTES_MAX: Final = 1_024
# Of the strings that name one member, each. Beyond: INVALID_REQUEST.
NAME_BYTES_MAX: Final = 1_024
# Of the id that a member is given: one of these, a hyphen and a UUID. Beyond: INVALID_REQUEST.
MEMBER_ID_BYTES_MAX: Final = NAME_BYTES_MAX + 37
# Protocols that one member offers. Beyond: INVALID_REQUEST.
PROTOCOLS_MAX: Final = 100
# What one member says about itself, all protocols together. Beyond: INVALID_REQUEST.
MEMBER_METADATA_BYTES_MAX: Final = 1_000_000
# The same, of all members of a group. Beyond: GROUP_MAX_SIZE_REACHED.
GROUP_METADATA_BYTES_MAX: Final = 16_000_000
# What a member costs in memory beside what it says and what it was given.
MEMBER_BYTES: Final = 2_048
# What a group's record may take: subscriptions and assignments of all members. It is one record of the offsets topic.
GROUP_RECORD_BYTES_MAX: Final = 1_000_000
# Members that leave in one call. Beyond: INVALID_REQUEST.
LEAVING_MAX: Final = 2_500

_BYTES_PER_CHARACTER_MAX: Final = 4


def is_too_long(internal_id: str) -> bool:
    """Of a group id, whether it has more than GROUP_ID_BYTES_MAX. Asked with every heartbeat."""
    if len(internal_id) * _BYTES_PER_CHARACTER_MAX <= GROUP_ID_BYTES_MAX:
        return False
    return len(internal_id.encode()) > GROUP_ID_BYTES_MAX

"""Limits of one group, which Kafka does not have. Each comment names the error code of a call that exceeds it.

Limits per instance are in `brokers.contract.coordinator_limits`.
"""

from __future__ import annotations

from typing import Final

# Length of an internal group id, which is in the key of each of its records. INVALID_GROUP_ID.
GROUP_ID_BYTES_MAX: Final = 1_024
# Length of each string that names a member: client id, group instance id, protocol. INVALID_REQUEST.
NAME_BYTES_MAX: Final = 1_024
# Length of an assigned member id: a client id or group instance id, a hyphen and a UUID. INVALID_REQUEST.
MEMBER_ID_BYTES_MAX: Final = NAME_BYTES_MAX + 37
# Protocols that one member offers. INVALID_REQUEST.
PROTOCOLS_MAX: Final = 100
# Metadata of one member, all its protocols together. INVALID_REQUEST.
MEMBER_METADATA_BYTES_MAX: Final = 1_000_000
# Metadata of all members of a group. GROUP_MAX_SIZE_REACHED.
GROUP_METADATA_BYTES_MAX: Final = 16_000_000
# Memory that a member takes without its metadata and its assignment.
MEMBER_BYTES: Final = 2_048
# Size of a group's record, which has the subscriptions and assignments of all members. MESSAGE_TOO_LARGE internally,
# UNKNOWN_SERVER_ERROR for clients.
GROUP_RECORD_BYTES_MAX: Final = 1_000_000
# Members in one LeaveGroup call. INVALID_REQUEST.
LEAVING_MAX: Final = 2_500

_BYTES_PER_CHARACTER_MAX: Final = 4


def is_too_long(internal_id: str) -> bool:
    """True if a group id is longer than GROUP_ID_BYTES_MAX. Called with every heartbeat."""
    if len(internal_id) * _BYTES_PER_CHARACTER_MAX <= GROUP_ID_BYTES_MAX:
        return False
    return len(internal_id.encode()) > GROUP_ID_BYTES_MAX

"""Limits of one group, of one transactional id and of one transaction. Those of groups, which Kafka does not have, are
commented with the error code of a call that exceeds them.

Limits per instance are in `brokers.contract.coordinator_limits`, settings of operators in `coordinators.settings`.
"""

from __future__ import annotations

from typing import Final

# -- groups ----------------------------------------------------------------------------------------------------------

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
LEAVING_MEMBERS_MAX: Final = 2_500

# -- transactions ----------------------------------------------------------------------------------------------------

# Length of a transactional id without the prefix of its instance, and with any prefix.
TRANSACTIONAL_ID_BYTES_MAX: Final = 1_024
INTERNAL_ID_BYTES_MAX: Final = TRANSACTIONAL_ID_BYTES_MAX + 64
# Each change rewrites and re-reads all partitions of the transaction, which takes some milliseconds at this number.
PARTITIONS_PER_TRANSACTION_MAX: Final = 4_000
# Size of the record of a transaction; a batch of the state topic holds up to 1,048,588 bytes.
TRANSACTION_BYTES_MAX: Final = 900_000
# Age at which unused ids expire in an instance that has reached its limit of ids. Partitions have forgotten the
# producers of these ids by then as well (`producer.id.expiration.ms`).
FULL_INSTANCE_EXPIRATION_MS: Final = 86_400_000
# Size of one batch of time-driven decisions (aborts, deletions); the rest follows in the next batch at once.
RECORDS_PER_ROUND_MAX: Final = 100
ROUND_BYTES_MAX: Final = TRANSACTION_BYTES_MAX
# Delay before the final record of a transaction is appended again after a failure.
COMPLETION_RETRY_MS: Final = 200

_BYTES_PER_CHARACTER_MAX: Final = 4


def is_too_long(internal_id: str) -> bool:
    """True if a group id is longer than GROUP_ID_BYTES_MAX. Called with every heartbeat."""
    if len(internal_id) * _BYTES_PER_CHARACTER_MAX <= GROUP_ID_BYTES_MAX:
        return False
    return len(internal_id.encode()) > GROUP_ID_BYTES_MAX

"""Limits of one transactional id and of one transaction.

Limits per instance are in `brokers.contract.coordinator_limits`, settings of operators in `coordinators.settings`.
"""

from __future__ import annotations

from typing import Final

# Length of a transactional id without the prefix of its instance, and with any prefix.
ID_BYTES_MAX: Final = 1_024
INTERNAL_ID_BYTES_MAX: Final = ID_BYTES_MAX + 64
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

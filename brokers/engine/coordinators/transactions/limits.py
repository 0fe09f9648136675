"""What one id or transaction of a tenant can make grow here, and how far.

What counts for all of an instance together is in `contract.coordinator_limits`, what operators choose in
`coordinators.settings`.
"""

from __future__ import annotations

from typing import Final

# Without the instance's prefix.
ID_BYTES_MAX: Final = 1_024
# Each change writes, and reads, all of them: some milliseconds.
PARTITIONS_PER_TRANSACTION_MAX: Final = 4_000
# What the record of a transaction may take; a batch of the state topic takes 1,048,588 bytes.
TRANSACTION_BYTES_MAX: Final = 900_000
# An instance that has as many ids as it may loses those at rest that nobody used for so long: by then partitions have
# forgotten their producers as well (`producer.id.expiration.ms`).
CROWDED_EXPIRATION_MS: Final = 86_400_000
# One batch of decisions that nobody asked for (aborts, deletions); what is left follows at once.
RECORDS_PER_ROUND_MAX: Final = 100
ROUND_BYTES_MAX: Final = TRANSACTION_BYTES_MAX
# The record of a completed transaction is tried again after so long, when it could not be appended.
COMPLETION_RETRY_MS: Final = 200

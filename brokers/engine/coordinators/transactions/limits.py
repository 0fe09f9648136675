"""What a tenant can make grow here, and how far; what operators choose is in `coordinators.settings`."""

from __future__ import annotations

from typing import Final

# Ids are spread over the shards by hash: an instance has room for about fifty times as many.
IDS_PER_INSTANCE_AND_SHARD_MAX: Final = 1_000
# Without the instance's prefix.
ID_BYTES_MAX: Final = 1_024
PARTITIONS_PER_TRANSACTION_MAX: Final = 10_000
# In open transactions of one instance, in one shard: with its ids alone a tenant could have fifty million of them.
OPEN_PARTITIONS_PER_INSTANCE_AND_SHARD_MAX: Final = 20_000
# What the record of a transaction may take; a batch of the state topic takes 1,048,588 bytes.
TRANSACTION_BYTES_MAX: Final = 900_000
# One batch of decisions that nobody asked for (aborts, deletions); what is left follows at once.
RECORDS_PER_ROUND_MAX: Final = 100
ROUND_BYTES_MAX: Final = TRANSACTION_BYTES_MAX
# The record of a completed transaction is tried again after so long, when it could not be appended.
COMPLETION_RETRY_MS: Final = 200

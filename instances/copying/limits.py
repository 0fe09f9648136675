"""Limits of copying records from one topic to another. Pure."""

from __future__ import annotations

from typing import Final

# Concurrent copies of an instance, of a tenant, and of all tenants; number of ended copies that are kept.
COPIES_PER_INSTANCE_MAX: Final = 1
COPIES_PER_TENANT_MAX: Final = 2
COPIES_MAX: Final = 8
ENDED_COPIES_KEPT_MAX: Final = 20

# Pace of a copy: this share of the instance's bandwidth, up to this many bytes per second.
COPY_BANDWIDTH_PERCENT: Final = 25
COPY_BYTES_PER_S_MAX: Final = 5_000_000
# The task continues copies at this interval, and works for at most this time.
COPY_EVERY_S: Final = 2
COPY_ROUND_S: Final = 1.5

# Sizes of one read and one written batch. A batch also stays below the topic's `max.message.bytes` less
# COPY_BATCH_OVERHEAD_BYTES, for its header.
COPY_READ_BYTES_MAX: Final = 1_000_000
COPY_BATCH_BYTES_MAX: Final = 256_000
COPY_BATCH_RECORDS_MAX: Final = 10_000
COPY_BATCH_OVERHEAD_BYTES: Final = 200
# A batch whose records are larger after decompression is skipped and counted.
COPY_INFLATED_BYTES_MAX: Final = 32_000_000

# The result of a write without a response is looked up after this time, when brokers have done it or never will.
COPY_RESOLVE_AFTER_S: Final = 30
# A copy without progress for this time has failed.
COPY_STALLED_S: Final = 600

"""What a topic has at most. Brokers refuse more, and the control plane says the same numbers at `/limits`. Pure."""

from __future__ import annotations

from typing import Final

PARTITIONS_PER_TOPIC_MAX: Final = 1_000
# More copies than this make every acknowledgement dearer and nothing safer in a cluster that replaces its brokers.
REPLICATION_FACTOR_MAX: Final = 3
# What all allow-lists of an instance take in ZooKeeper, those of deleted topics included: so much for each list, and
# its addresses.
ALLOW_LIST_BYTES_MAX: Final = 512 * 1024
ALLOW_LIST_BYTES_EACH: Final = 400

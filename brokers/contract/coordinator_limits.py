"""How far what coordinators keep for one instance may grow, over all of the cluster. Brokers hold to it, the control
plane tells tenants.

Each broker counts what it coordinates, and grants the share of each limit that is its share of the state topic's
partitions, though never less than the floor beside it: one group or transaction of the largest ordinary kind.
"""

from __future__ import annotations

from typing import Final

GROUPS_PER_INSTANCE_MAX: Final = 10_000
# Members of all groups, and ids that were given to members that have not joined yet.
MEMBERS_PER_INSTANCE_MAX: Final = 5_000
# What the members of all groups take in memory: what they say, what they were given, and themselves.
MEMBER_BYTES_PER_INSTANCE_MAX: Final = 24 << 20
# Of all groups together, each partition counted in each group.
OFFSETS_PER_INSTANCE_MAX: Final = 100_000
# What these take in memory, with their metadata.
OFFSET_BYTES_PER_INSTANCE_MAX: Final = 26 << 20
TRANSACTIONAL_IDS_PER_INSTANCE_MAX: Final = 10_000
# In open transactions, each partition counted in each of them.
OPEN_PARTITIONS_PER_INSTANCE_MAX: Final = 40_000

MEMBERS_FLOOR: Final = 1_000
MEMBER_BYTES_FLOOR: Final = 16 << 20
OFFSETS_FLOOR: Final = 20_000
OFFSET_BYTES_FLOOR: Final = 8 << 20
OPEN_PARTITIONS_FLOOR: Final = 8_000

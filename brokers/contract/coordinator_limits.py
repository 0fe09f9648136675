"""Limits on the coordinators' state of one instance, over the whole cluster; brokers enforce them and the control plane
publishes them.

Each broker counts what it coordinates and grants a part of each limit, proportional to the partitions of the state
topic that it leads, and at least the floor, which fits the largest usual group or transaction. All instances of a
tenant together have `TENANT_INSTANCES_MAX` times as much as one.
"""

from __future__ import annotations

from typing import Final

# Limits of a tenant in a cluster, in limits of one instance: more instances do not multiply them further.
TENANT_INSTANCES_MAX: Final = 4

GROUPS_PER_INSTANCE_MAX: Final = 10_000
# Members of all groups, and assigned member ids that have not joined yet.
MEMBERS_PER_INSTANCE_MAX: Final = 5_000
# Memory of the members of all groups, with their metadata and assignments.
MEMBER_BYTES_PER_INSTANCE_MAX: Final = 24 << 20
# Committed offsets of all groups; a partition counts in each group.
OFFSETS_PER_INSTANCE_MAX: Final = 100_000
# Memory of the committed offsets, with their metadata.
OFFSET_BYTES_PER_INSTANCE_MAX: Final = 26 << 20
TRANSACTIONAL_IDS_PER_INSTANCE_MAX: Final = 10_000
# Partitions in open transactions; a partition counts in each transaction.
OPEN_PARTITIONS_PER_INSTANCE_MAX: Final = 40_000

MEMBERS_FLOOR: Final = 1_000
MEMBER_BYTES_FLOOR: Final = 16 << 20
OFFSETS_FLOOR: Final = 20_000
OFFSET_BYTES_FLOOR: Final = 8 << 20
OPEN_PARTITIONS_FLOOR: Final = 8_000

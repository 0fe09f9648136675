"""What access rules of an instance have at most. Brokers refuse more; the control plane says so first. Pure."""

from __future__ import annotations

from typing import Final

ACL_RULES_PER_INSTANCE_MAX: Final = 1_000
# Of a resource's or principal's name as it stands in ZooKeeper.
ACL_NAME_BYTES_MAX: Final = 255

"""Limits of an instance's access rules. Brokers enforce them; the control plane reports them first. Pure."""

from __future__ import annotations

from typing import Final

ACL_RULES_PER_INSTANCE_MAX: Final = 1_000
# Bytes of a resource's or principal's name as stored in ZooKeeper.
ACL_NAME_BYTES_MAX: Final = 255

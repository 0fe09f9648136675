"""Interface through which rebalances notify billing; billing plugs it when Django starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenants.interfaces import Interface

# Takes (cluster id, partition of `__usage`): its log was recreated and begins at offset 0, regardless of the offsets
# read before.
usage_begins_anew: Interface[Callable[[str, int], Any]] = Interface("brokers.rebalancing.interfaces.usage_begins_anew")

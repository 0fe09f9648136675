"""What the fleet has to tell billing; plugged by that app when Django starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenants.interfaces import Interface

# (cluster id, partition of `__usage`): its log was made anew and begins at offset 0, whatever was read of it before.
usage_begins_anew: Interface[Callable[[str, int], Any]] = Interface("brokers.rebalancing.interfaces.usage_begins_anew")

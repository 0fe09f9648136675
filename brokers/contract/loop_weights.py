"""Bounds of the part of a broker's event loop that an instance has beside others; brokers enforce them and the control
plane publishes them.
"""

from __future__ import annotations

from typing import Final

# From the first of these bandwidths to the second the part of an instance follows what it bought; below and above it
# stays the same, so that the smallest instance is served in time and the largest leaves room for others.
LIGHTEST_BPS: Final = 3_125_000
HEAVIEST_BPS: Final = 100_000_000
# The part of a tenant, however many instances it has, in parts of the largest one of its own: many small instances
# delay a neighbour no more than two of them would.
TENANT_WEIGHT_MAX: Final = 2

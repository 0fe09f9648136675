"""Bounds of an instance's fair share of a broker's event loop; brokers enforce them and the control plane publishes
them.
"""

from __future__ import annotations

from typing import Final

# Between these bandwidths the share of an instance is proportional to its bandwidth. Below and above it is constant,
# so that the smallest instance is served in time and the largest leaves room for others.
LIGHTEST_BPS: Final = 3_125_000
HEAVIEST_BPS: Final = 100_000_000
# Share of a tenant with several instances, as a multiple of its largest instance's share: many small instances delay a
# neighbour no more than two would.
TENANT_WEIGHT_MAX: Final = 2

"""Where the ports of brokers lie on their host, so that one number, the first tenant port, moves them all."""

from __future__ import annotations

from typing import Final

INTERNAL_PORTS_BELOW: Final = 999
ADMIN_PORTS_BELOW: Final = 899
LOWEST_PORT: Final = 1_024
HIGHEST_PORT: Final = 65_535

"""Offsets of the brokers' ports from the first tenant port of their host, which determines all of them."""

from __future__ import annotations

from typing import Final

INTERNAL_PORTS_BELOW: Final = 999
ADMIN_PORTS_BELOW: Final = 899
LOWEST_PORT: Final = 1_024
HIGHEST_PORT: Final = 65_535

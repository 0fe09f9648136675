"""Reasons why a connection reads nothing, as bits that add up."""

from __future__ import annotations

from typing import Final

PROCESSING: Final = 1
WRITING: Final = 2
MUTED: Final = 4
NO_BUFFER: Final = 8
TOO_MANY_PENDING: Final = 16
IN_LINE: Final = 32

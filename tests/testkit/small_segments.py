"""Broker settings that allow segments of any size, so that a few records fill several."""

from __future__ import annotations

from typing import Final

from brokers.engine.partitions.topic_bounds import SEGMENT_BYTES

SMALL_SEGMENTS: Final = {SEGMENT_BYTES.broker_key: "1"}

"""Internal topics in which every broker leads a partition with one replica, for the events of that broker."""

from __future__ import annotations

from typing import Final

from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.usage import USAGE_TOPIC

LED_BY_EACH_BROKER: Final = (USAGE_TOPIC, AUDIT_TOPIC)

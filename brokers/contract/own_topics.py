"""The topics of which every broker leads a partition, to write what it alone can say. Each has one replica."""

from __future__ import annotations

from typing import Final

from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.usage import USAGE_TOPIC

LED_BY_EACH_BROKER: Final = (USAGE_TOPIC, AUDIT_TOPIC)

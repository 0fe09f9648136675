"""Key of a partition, and the id that stands for no leader."""

from __future__ import annotations

from typing import Final

# Topic and partition index. In the engine the topic is the internal name.
PartitionKey = tuple[str, int]

NO_LEADER: Final = -1

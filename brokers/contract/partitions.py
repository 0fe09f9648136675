"""How a partition is named wherever one is spoken of, and what stands for a leader that it has not."""

from __future__ import annotations

from typing import Final

# Topic and index. Within the engine the topic is the internal name.
PartitionKey = tuple[str, int]

NO_LEADER: Final = -1

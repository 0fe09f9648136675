"""Which replicas of a topic are copied within a limit (QUO-60): all of them, or those that a list names."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

ALL: Final = "*"
_PAIR: Final = re.compile(r"[0-9]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`pairs` are (partition, broker); None means all."""

    pairs: Set[tuple[int, int]] | None

    def holds(self, index: int, broker_id: int) -> bool:
        return self.pairs is None or (index, broker_id) in self.pairs


def is_list_of_replicas(value: str) -> bool:
    """`*`, nothing, or `partition:broker` pairs."""
    return value in ("", ALL) or all(_PAIR.fullmatch(word.strip()) for word in value.split(","))


def parse(value: str) -> ThrottledReplicas | None:
    """None when no replica is named, which is how nearly every topic is."""
    if value == ALL:
        return ThrottledReplicas(None)
    pairs = [word.strip().split(":") for word in value.split(",") if _PAIR.fullmatch(word.strip())]
    return ThrottledReplicas(frozenset((int(index), int(broker)) for index, broker in pairs)) if pairs else None

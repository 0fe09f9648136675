"""Throttled replicas of a topic (QUO-60): all of them, or those in a list."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

ALL: Final = "*"
_PAIR: Final = re.compile(r"[0-9]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Set of throttled replicas; `pairs` are (partition, broker), and None means all."""

    pairs: Set[tuple[int, int]] | None

    def includes(self, index: int, broker_id: int) -> bool:
        return self.pairs is None or (index, broker_id) in self.pairs


def is_list_of_replicas(value: str) -> bool:
    """True if the value is `*`, empty, or a list of `partition:broker` pairs."""
    return value in ("", ALL) or all(_PAIR.fullmatch(pair.strip()) for pair in value.split(","))


def parse(value: str) -> ThrottledReplicas | None:
    """Parses the setting; returns None if it names no replica, as for nearly every topic."""
    if value == ALL:
        return ThrottledReplicas(None)
    pairs = [pair.strip().split(":") for pair in value.split(",") if _PAIR.fullmatch(pair.strip())]
    return ThrottledReplicas(frozenset((int(index), int(broker)) for index, broker in pairs)) if pairs else None

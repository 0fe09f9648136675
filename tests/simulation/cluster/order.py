"""Deterministic iteration over sets of objects, whose order otherwise depends on memory addresses."""

from __future__ import annotations

import itertools
from typing import Any

from brokers.engine.partitions.delayed_operations import DelayedOperation
from brokers.engine.partitions.partition import Partition


class InOrder:
    """Makes the hashes of engine objects deterministic until `close`."""

    def __init__(self) -> None:
        numbers: dict[int, int] = {}
        count = itertools.count()
        make = self._make = DelayedOperation.__init__

        def numbered(wait: DelayedOperation, *arguments: Any) -> None:
            numbers[id(wait)] = next(count)
            make(wait, *arguments)

        DelayedOperation.__init__ = numbered  # type: ignore[method-assign]
        DelayedOperation.__hash__ = lambda wait: numbers[id(wait)]  # type: ignore[method-assign,assignment]
        Partition.__hash__ = lambda partition: partition.index  # type: ignore[method-assign,assignment]

    def close(self) -> None:
        DelayedOperation.__init__ = self._make  # type: ignore[method-assign]
        DelayedOperation.__hash__ = object.__hash__  # type: ignore[method-assign,assignment]
        Partition.__hash__ = object.__hash__  # type: ignore[method-assign,assignment]

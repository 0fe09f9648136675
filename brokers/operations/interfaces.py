"""Interface through which operations ask billing for the usage offsets it has read; billing plugs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenants.interfaces import Interface

# Takes the cluster id; returns partition of `__usage` -> next offset to read. Everything below it is in the database.
next_usage_offsets: Interface[Callable[[str], Mapping[int, int]]] = Interface(
    "brokers.operations.interfaces.next_usage_offsets"
)

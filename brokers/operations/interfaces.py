"""Questions of the fleet to billing; plugged by that app when Django starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenants.interfaces import Interface

# (cluster id): partition of `__usage` -> next offset to be read. What lies below it is in the database.
usage_read_to: Interface[Callable[[str], Mapping[int, int]]] = Interface("brokers.operations.interfaces.usage_read_to")

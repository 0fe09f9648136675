"""What the operator's first page asks of the apps above; plugged by billing when Django starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokers.monitoring.attention import Need
from tenants.interfaces import Interface

# Action items about usage records that brokers wrote: at most so many.
usage_needs: Interface[Callable[[int], Iterable[Need]]] = Interface("brokers.monitoring.interfaces.usage_needs")

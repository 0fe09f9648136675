"""Interfaces through which the operator's first page asks the apps above; billing plugs them when Django starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from brokers.monitoring.attention import Need
from tenants.interfaces import Interface

# Action items about usage records that brokers wrote: at most so many.
usage_needs: Interface[Callable[[int], Iterable[Need]]] = Interface("brokers.monitoring.interfaces.usage_needs")
# (now): what needs a person in billing. Asked for operators who may see invoices alone.
money_needs: Interface[Callable[[datetime], Iterable[Need]]] = Interface("brokers.monitoring.interfaces.money_needs")

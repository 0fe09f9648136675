"""Interface through which the operator's first page asks billing; plugged by that app when Django starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from brokers.monitoring.attention import Need
from tenants.interfaces import Interface

# (now): what needs a person in billing. Asked for operators who may see invoices alone.
money_needs: Interface[Callable[[datetime], Iterable[Need]]] = Interface("brokers.monitoring.interfaces.money_needs")

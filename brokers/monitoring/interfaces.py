"""Interfaces for action items of billing on the operator's first page; billing plugs them when Django starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from brokers.monitoring.attention import OperatorActionItem
from tenants.interfaces import Interface

# Returns action items about usage records that brokers wrote, up to the given number.
usage_needs: Interface[Callable[[int], Iterable[OperatorActionItem]]] = Interface(
    "brokers.monitoring.interfaces.usage_needs"
)
# Takes the time; returns action items of billing. Called only for operators who may see invoices.
money_needs: Interface[Callable[[datetime], Iterable[OperatorActionItem]]] = Interface(
    "brokers.monitoring.interfaces.money_needs"
)

"""Planted faults by which limits would pass too much or too little: the simulation of serial clients finds each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from benchmarks import sharing_serial
from brokers.engine.flowmaster.pools import PoolLedger
from brokers.engine.throttling.charging import Limiter
from brokers.engine.throttling.pool import Pool
from brokers.native import finder
from quotas.throttle import DELAY_MS_MAX

pytestmark = pytest.mark.skipif(finder.is_installed(), reason="compiled modules are patched by nobody")

KB: Final = 1_000
MB: Final = 1_000_000
Plant = Callable[[pytest.MonkeyPatch], None]


def parts_alone(patch: pytest.MonkeyPatch) -> None:
    """Plant: brokers never use the whole limit; one busy broker gets a third."""
    patch.setattr(Pool, "debt_ms", lambda self, now_ms, excluded_bytes=0: DELAY_MS_MAX)


def charges_lost(patch: pytest.MonkeyPatch) -> None:
    """Plant: the flow master ignores the amount of a charge; brokers never owe anything."""
    charge = PoolLedger.charge

    def nothing(self: PoolLedger, key: Any, line: Any, now_ms: int, silent_bps: int = 0) -> Any:
        return charge(self, key, line._replace(amount_bytes=0), now_ms, silent_bps)

    patch.setattr(PoolLedger, "charge", nothing)


def debt_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Plant: each request is admitted without a check of the debt."""
    patch.setattr(Limiter, "debt_ms", lambda self, now_ms, later=0: 0)


def failing(outcome: sharing_serial.Outcome) -> bool:
    return outcome.mean_share < 0.95 or outcome.peak_share > 1.05


@pytest.mark.parametrize(
    ("plant", "shape"),
    [
        (parts_alone, "one key"),
        (charges_lost, "in turn"),
        (debt_not_asked, "one key"),
    ],
)
def test_a_planted_mistake_is_found(plant: Plant, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not failing(sharing_serial.run(shape, 20 * KB, 5 * MB))
    plant(monkeypatch)
    assert failing(sharing_serial.run(shape, 20 * KB, 5 * MB))

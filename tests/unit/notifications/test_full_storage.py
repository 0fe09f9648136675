"""Full storage is decided once: conditions, forecasts, alert rules, growth and the controller of a cluster agree."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.capacity.ledger import Bought, ReportedUse, StorageLedger
from instances.choices import ConditionType
from instances.lifecycle.conditions import Observation, StorageUsed, after_observation
from instances.lifecycle.growth import next_storage_gb
from instances.lifecycle.phases import Phase
from instances.limits import BYTES_PER_GB, GROW_FROM_PERCENT
from instances.metrics.forecast import FillState, forecast
from instances.metrics.storage_use import FULL_PERCENT, is_storage_full, used_percent
from instances.models import Instance
from notifications.alerts.figures import Figures
from notifications.models import AlertKind, AlertRule

STORAGE_GB = 10
BOUGHT = STORAGE_GB * BYTES_PER_GB
NOW = datetime(2026, 3, 14, tzinfo=UTC)


def level_of(used: StorageUsed) -> int:
    seen = Observation(silent=frozenset(), leaderless=None, storage=used, shortened=None, at=NOW)
    kind = ConditionType.STORAGE_AVAILABLE.value
    rows = [row for row in after_observation([], seen, bought_bytes=BOUGHT) if row["type"] == kind]
    return int(rows[0]["data"]["percent"]) if rows else 0


def figure_of(used_bytes: int) -> int | None:
    instance = Instance(pk="ins-00000000", phase=Phase.RUNNING.value, storage_gb=STORAGE_GB)
    figures = Figures(instances={instance.pk: instance}, used_bytes={instance.pk: used_bytes})
    return figures.sample_of(AlertRule(kind=AlertKind.STORAGE_USED, instance=instance)).value


def is_refused(used_bytes: int) -> bool:
    ledger = StorageLedger(0)
    ledger.set_live_brokers([1], 0)
    ledger.begin_report(1, 7, True, 0)
    return ledger.handle_report(
        1, ReportedUse("ins-00000000", used_bytes, 0, 0, 0, False), Bought(BOUGHT, 1), 0
    ).is_full


@given(st.integers(0, 2 * BOUGHT) | st.integers(BOUGHT - 2, BOUGHT + 2))
def test_all_that_decides_about_full_storage_says_the_same(used_bytes: int) -> None:
    is_full = is_storage_full(used_bytes, BOUGHT)
    assert is_full is is_refused(used_bytes)
    assert is_full is (level_of(StorageUsed(used_bytes=used_bytes)) == FULL_PERCENT)
    assert is_full is (forecast([], used_bytes=used_bytes, bought_bytes=BOUGHT).state is FillState.FULL)
    percent = used_percent(used_bytes, BOUGHT)
    assert figure_of(used_bytes) == percent
    assert is_full is (percent >= FULL_PERCENT)
    grows = next_storage_gb(STORAGE_GB, used_bytes, step_gb=1, max_gb=STORAGE_GB * 10) is not None
    assert grows is (percent >= GROW_FROM_PERCENT)


@pytest.mark.parametrize("used_bytes", [0, BOUGHT * 99 // 100])
def test_storage_stays_full_while_brokers_refuse(used_bytes: int) -> None:
    assert is_storage_full(used_bytes, BOUGHT, is_refused=True)
    assert level_of(StorageUsed(used_bytes=used_bytes, is_full=True)) == FULL_PERCENT
    assert not is_storage_full(used_bytes, BOUGHT)


def test_storage_of_no_bytes_is_full() -> None:
    assert is_storage_full(0, 0)

"""Warnings about settings of a topic that have no effect."""

from __future__ import annotations

import pytest

from instances.topics.warnings import topic_warnings
from quotas.interfaces import ClientQuota, EntityPart
from quotas.selectors import BATCH_BYTES, batch_delay_s

RATE = "penstock.consume.byte.rate"


def test_a_topic_limit_below_one_batch_is_warned_of() -> None:
    (warning,) = topic_warnings({RATE: "30000", "max.message.bytes": "600000"}, 3)
    assert (warning.code, warning.setting, warning.wanted) == ("limit_below_one_batch", RATE, 30_000)
    assert "20 s" in warning.detail


@pytest.mark.parametrize(
    "config",
    [
        {RATE: "600000", "max.message.bytes": "600000"},
        {RATE: "-1", "max.message.bytes": "600000"},
        {RATE: "1048588"},
        {RATE: None, "max.message.bytes": "600000"},
        {},
    ],
)
def test_other_limits_are_not(config: dict[str, str | None]) -> None:
    assert topic_warnings(config, 3) == ()


def test_each_setting_has_its_warning() -> None:
    config = {
        "min.insync.replicas": "3",
        "penstock.produce.byte.rate": "1",
        RATE: "1",
        "max.message.bytes": "2",
    }
    assert [warning.setting for warning in topic_warnings(config, 1)] == [
        "min.insync.replicas", "penstock.produce.byte.rate", RATE,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"producer_byte_rate": 100_000.0}, 11),
        ({"producer_byte_rate": 100_000.0, "consumer_byte_rate": 50_000.0}, 21),
        ({"producer_byte_rate": float(BATCH_BYTES)}, 0),
        ({"producer_byte_rate": 0.0}, 0),
        ({"request_percentage": 1.0}, 0),
    ],
)
def test_a_quota_says_how_long_one_batch_takes_it(limits: dict[str, float], seconds: int) -> None:
    quota = ClientQuota(user=EntityPart(name="u"), client_id=None, limits=limits)
    assert batch_delay_s(quota) == seconds

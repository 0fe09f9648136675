"""Replication throttle of a rebalance: while it moves replicas, its topics are copied at its rate; afterwards the
previous settings are restored.

The previous settings are stored in `Rebalance.pace` before anything is changed, so the executor may crash at any point:
the next run continues, and restores the previous settings (QUO-60).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog

from brokers.dataplane.settings import SettingsAdminClient
from brokers.limits import PACED_TOPICS_AT_ONCE
from brokers.models import Rebalance
from instances.limits import BYTES_PER_MB

log = structlog.get_logger(__name__)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
# Replicas in sync are never throttled, so all of a topic may be named: only those that catch up are affected.
ALL_REPLICAS = "*"


def apply(row: Rebalance, topics: Iterable[str]) -> None:
    """Throttles the replication of `topics`, or lifts the throttle if the rebalance has no limit.

    Call it before partitions of `topics` are copied, and in each run while they are copied. Raises `DomainError`.
    """
    if row.copy_mb_s is None:
        lift(row)
        return
    admin_client = SettingsAdminClient(row.cluster)
    _set_rate(row, admin_client, row.copy_mb_s * BYTES_PER_MB)
    _store_previous_settings(row, admin_client, sorted(set(topics) - row.pace["topics"].keys()))
    _throttle_topics(row, admin_client)


def lift(row: Rebalance) -> None:
    """Restores the previous settings. Raises `DomainError`."""
    if not row.pace:
        return
    admin_client, topics = SettingsAdminClient(row.cluster), row.pace["topics"]
    while topics:
        names = sorted(topics)[:PACED_TOPICS_AT_ONCE]
        admin_client.set_for_topics(
            {name: {key: topics[name]["before"].get(key) for key in REPLICAS} for name in names}
        )
        for name in names:
            del topics[name]
        _save_pace(row)
    admin_client.set_for_all_brokers({key: row.pace["before"].get(key) for key in RATES})
    row.pace = {}
    _save_pace(row)
    log.info("rebalance.throttle_removed", rebalance_id=row.pk)


def _set_rate(row: Rebalance, admin_client: SettingsAdminClient, bytes_per_s: int) -> None:
    if not row.pace:
        row.pace = {"before": admin_client.of_all_brokers(RATES), "rate": None, "topics": {}}
        _save_pace(row)
    if row.pace["rate"] != bytes_per_s:
        admin_client.set_for_all_brokers(dict.fromkeys(RATES, str(bytes_per_s)))
        row.pace["rate"] = bytes_per_s
        _save_pace(row)
        log.info("rebalance.throttle_set", rebalance_id=row.pk, bytes_per_s=bytes_per_s)


def _store_previous_settings(row: Rebalance, admin_client: SettingsAdminClient, topics: list[str]) -> None:
    """Stores the previous settings of topics that are not throttled yet."""
    for start in range(0, len(topics), PACED_TOPICS_AT_ONCE):
        result = admin_client.of_topics(topics[start : start + PACED_TOPICS_AT_ONCE], REPLICAS)
        settings_by_topic: dict[str, Any] = {
            name: {"before": previous_settings, "is_set": False} for name, previous_settings in result.items()
        }
        row.pace["topics"] |= settings_by_topic
        _save_pace(row)


def _throttle_topics(row: Rebalance, admin_client: SettingsAdminClient) -> None:
    unset_topics = sorted(name for name, topic_settings in row.pace["topics"].items() if not topic_settings["is_set"])
    for start in range(0, len(unset_topics), PACED_TOPICS_AT_ONCE):
        names = unset_topics[start : start + PACED_TOPICS_AT_ONCE]
        admin_client.set_for_topics({name: dict.fromkeys(REPLICAS, ALL_REPLICAS) for name in names})
        for name in names:
            row.pace["topics"][name]["is_set"] = True
        _save_pace(row)


def _save_pace(row: Rebalance) -> None:
    """Saves `pace` without a new version of the row, because it is no change by an operator."""
    Rebalance.objects.filter(pk=row.pk).update(pace=row.pace)

"""Processing of usage: a failing cluster does not stop the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from billing import selectors, usage_backlog
from billing.models import UsageOffset
from billing.pipeline.job import UsageLost, plan
from billing.pipeline.sink import PipelineBusy
from brokers.contract.usage import USAGE_TOPIC
from brokers.rebalancing.interfaces import usage_begins_anew


@pytest.mark.django_db
@pytest.mark.parametrize(
    "trouble", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), PipelineBusy("busy"), UsageLost("lost")]
)
def test_a_cluster_in_trouble_keeps_no_other_from_being_billed(
    trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_off: list[str] = []

    def catch_up(cluster: Any) -> None:
        if cluster.cluster_id == "cl-silent00":
            raise trouble
        worked_off.append(cluster.cluster_id)

    sources = [SimpleNamespace(cluster_id=name) for name in ("cl-silent00", "cl-awake000")]
    monkeypatch.setattr(selectors, "usage_sources", lambda: sources)
    monkeypatch.setattr(usage_backlog, "_process_backlog", catch_up)
    usage_backlog.process_all_clusters()
    assert worked_off == ["cl-awake000"]


def test_an_unexpected_error_in_one_cluster_is_raised_after_the_others_have_been_billed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked_off: list[str] = []

    def catch_up(cluster: Any) -> None:
        if cluster.cluster_id != "cl-awake000":
            raise RuntimeError(f"Spark gave up on {cluster.cluster_id}")  # as where a planned range cannot be read
        worked_off.append(cluster.cluster_id)

    sources = [SimpleNamespace(cluster_id=name) for name in ("cl-stalled0", "cl-stalled1", "cl-awake000")]
    monkeypatch.setattr(selectors, "usage_sources", lambda: sources)
    monkeypatch.setattr(usage_backlog, "_process_backlog", catch_up)
    with pytest.raises(RuntimeError, match="cl-stalled0"):
        usage_backlog.process_all_clusters()
    assert worked_off == ["cl-awake000"]


@pytest.mark.django_db
def test_a_usage_partition_that_is_made_anew_is_read_from_its_beginning() -> None:
    """Its broker was removed as lost; the stored offset is beyond the end of the empty log."""
    for cluster, partition in (("cl-00000000", 1), ("cl-00000000", 2), ("cl-11111111", 2)):
        UsageOffset.objects.create(cluster_id=cluster, topic=USAGE_TOPIC, partition=partition, next_offset=700)

    def stored() -> dict[int, int]:
        return dict(UsageOffset.objects.filter(cluster_id="cl-00000000").values_list("partition", "next_offset"))

    with pytest.raises(UsageLost):
        plan(stored(), {1: (0, 700), 2: (0, 3)})
    usage_begins_anew.implementation("cl-00000000", 2)
    assert plan(stored(), {1: (0, 700), 2: (0, 3)}) == {2: (0, 3)}
    assert UsageOffset.objects.filter(cluster_id="cl-11111111").exists()

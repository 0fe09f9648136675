"""GRP-2: a cluster of fewer than three brokers has coordinators as well."""

from __future__ import annotations

import json

import pytest

from billing.pipeline.decoding import batch_of
from brokers.agent.defaults import cluster_defaults
from brokers.contract.usage import CounterValue, ReportHead
from brokers.contract.usage_columns import to_record
from brokers.engine.assembly.metering import record_version
from brokers.engine.coordinators.settings import from_overrides


@pytest.mark.parametrize(("brokers", "replicas"), [(0, 1), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_coordinator_topics_have_as_many_replicas_as_there_are_brokers_for(brokers: int, replicas: int) -> None:
    settings = from_overrides(cluster_defaults(brokers))

    assert settings.groups_topic.replication_factor == replicas
    assert settings.transactions_topic.replication_factor == replicas


def test_a_broker_writes_the_newest_record_version_that_the_pipeline_reads() -> None:
    version = record_version(cluster_defaults(3))
    record = to_record(ReportHead(1, 1, 1, 1), [CounterValue("ins-aaaaaaaa", "t", "u", "c", "produce", 7, 1)])
    assert json.loads(record)[0] == version
    assert batch_of(0, [0], [record]).column("bytes").to_pylist() == [7]
    assert record_version({}) == 1, "an agent that says nothing knows of no other"

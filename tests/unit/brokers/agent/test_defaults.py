"""GRP-2: a cluster of fewer than three brokers has coordinators as well."""

from __future__ import annotations

import pytest

from brokers.agent.defaults import cluster_defaults
from brokers.engine.coordinators.settings import from_overrides


@pytest.mark.parametrize(("brokers", "replicas"), [(0, 1), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_what_coordinators_remember_has_as_many_copies_as_there_are_brokers_for(brokers: int, replicas: int) -> None:
    settings = from_overrides(cluster_defaults(brokers))

    assert settings.groups_topic.replication_factor == replicas
    assert settings.transactions_topic.replication_factor == replicas

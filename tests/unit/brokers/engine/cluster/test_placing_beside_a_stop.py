"""Placement of topics that are created while a broker is stopping (decision 67)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from brokers.contract.documents import TopicDocument
from brokers.engine.cluster import topic_plans
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, TopicImage
from brokers.engine.cluster.topic_plans import TopicSpec
from brokers.engine.controller.placement import Placer


def image(racks: Mapping[int, str | None], *stopping: int) -> ClusterImage:
    brokers = {id: BrokerInfo(id, "127.0.0.1", 1, 1, rack, 1, id in stopping) for id, rack in racks.items()}
    return ClusterImage("cl-test", brokers=brokers)


def holders(
    cluster_image: ClusterImage, factor: int, assignment: Mapping[int, list[int]] | None = None, first: int = 0
) -> set[int]:
    """Returns the brokers of a topic with eight partitions."""
    plan = topic_plans.plan_creation(
        cluster_image,
        TopicSpec(
            None,
            "x",
            partitions=-1 if assignment else 8,
            replication_factor=-1 if assignment else factor,
            assignment=assignment,
        ),
        assign_replicas=Placer(lambda below: first % below),
        topic_id=bytes(16),
        replication_factor_max=3,
    )
    return {broker for replicas in plan.assignment.values() for broker in replicas}


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_stopping_broker_gets_no_replica(factor: int, first: int) -> None:
    assert holders(image({1: None, 2: None, 3: None}, 2), factor, first=first) == {1, 3}


def test_a_stopping_broker_gets_replicas_if_the_others_are_too_few() -> None:
    assert holders(image({1: None, 2: None, 3: None}, 2), 3) == {1, 2, 3}
    assert holders(image({1: None}, 1), 1) == {1}


def test_a_stopping_broker_gets_replicas_if_the_others_are_in_too_few_racks() -> None:
    """ASG-6: a stop takes seconds, replicas in one rack are permanent."""
    assert holders(image({1: "a", 2: "a", 3: "b"}, 3), 2) == {1, 2, 3}
    assert holders(image({1: "a", 2: "a", 3: "b", 4: "b"}, 3), 2) == {1, 2, 4}


def test_a_manual_assignment_may_name_a_stopping_broker() -> None:
    assert holders(image({1: None, 2: None, 3: None}, 2), 1, {0: [2], 1: [3]}) == {2, 3}


def test_added_partitions_go_to_brokers_that_stay() -> None:
    """ASG-5: partition 0 is on the broker that is stopping, so the first of the others begins."""
    cluster_image = image({1: None, 2: None, 3: None}, 2)
    topic = TopicImage("x", "x", None, bytes(16), (), {})
    document = TopicDocument(topic_id="", assignment={0: (2,)})
    added = topic_plans.plan_growth(cluster_image, topic, document, 5, None, Placer(lambda below: 0))
    assert added == {1: (3,), 2: (1,), 3: (3,), 4: (1,)}

"""ElectLeaders while the cluster changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.election_writes import ElectionResult
from brokers.engine.cluster.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.handlers.cluster.leaders_and_replicas import elect_leaders
from brokers.engine.protocol.messages.reassignment import ElectLeadersRequest, ElectLeadersTopicPartitions


def _topic(partitions: int, topic_id: bytes) -> TopicImage:
    lines = tuple(PartitionImage(index, (1, 2), 1, 0, (1, 2), 1, 0) for index in range(partitions))
    return TopicImage("t", "t", None, topic_id, lines, {})


async def test_a_topic_made_again_with_fewer_partitions_is_not_waited_for() -> None:
    """The check of the metadata for waiting elections must not fail, which would end the broker."""
    before = ClusterImage("c").with_changes(ImageDelta(topics={"t": _topic(3, b"1" * 16)}))
    current = CurrentImage(before)

    class Store:
        async def elect_leaders(self, *_: Any) -> dict[tuple[str, int], ElectionResult]:
            current.publish(before.with_changes(ImageDelta(topics={"t": _topic(1, b"2" * 16)})))
            return {("t", 2): ElectionResult(2, 1)}

    view = SimpleNamespace(namespace=SimpleNamespace(topics=before.topics_by_encoded_name), instance_id=None)
    services = SimpleNamespace(metadata=SimpleNamespace(store=Store(), current=current))
    call: Any = SimpleNamespace(view=view, services=services)
    asked = [ElectLeadersTopicPartitions(topic="t", partitions=[2])]

    answer = await elect_leaders(call, ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=10))

    assert [line.error_code for line in answer.replica_election_results[0].partition_result] == [0]

"""The cluster report for operators: counts of partitions in bad states, and partitions page by page."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.assembly.cluster_report import ClusterReport
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage


def broker(id: int, epoch: int = 10, *, stopping: bool = False) -> BrokerInfo:
    return BrokerInfo(id, "127.0.0.1", 1, 1, None, epoch, stopping)


def partition(index: int, *replicas: int, **more: Any) -> PartitionImage:
    isr = more.pop("isr", replicas)
    known = {"leader": replicas[0], "leader_epoch": 0, "isr": isr, "version": 0, "written_at": 50}
    return PartitionImage(index, replicas, **(known | more))


def topic(name: str, *partitions: PartitionImage, **more: Any) -> TopicImage:
    known = {"user_name": name, "instance_id": None, "topic_id": name.encode().ljust(16), "config": {}}
    return TopicImage(name, partitions=partitions, **(known | more))


def image(*topics: TopicImage, brokers: tuple[BrokerInfo, ...] = ()) -> ClusterImage:
    live = brokers or tuple(broker(id) for id in (1, 2, 3))
    return ClusterImage("cl-test", controller_id=1).with_changes(
        ImageDelta(brokers={item.id: item for item in live}, topics={item.name: item for item in topics})
    )


def test_a_healthy_cluster_misses_nothing() -> None:
    counts = ClusterReport().counts(image(topic("a", partition(0, 1, 2), partition(1, 2, 3))))
    assert (counts["topics"], counts["partitions"], counts["replicas"]) == (1, 2, 4)
    assert not any(counts[name] for name in ("under_replicated", "offline", "under_min_isr", "moving"))
    second = counts["brokers"][1]
    assert (second["id"], second["leaders"], second["preferred"], second["replicas"]) == (2, 1, 1, 2)


def test_a_replica_out_of_the_isr_is_missed_on_its_broker() -> None:
    """A member of the ISR from an earlier incarnation of its broker is not in sync (REP-24)."""
    shrunk = topic("a", partition(0, 1, 2, isr=(1,)))
    assert ClusterReport().counts(image(shrunk))["under_replicated"] == 1
    bounced = image(topic("a", partition(0, 1, 2, isr_epochs=(10, 10))), brokers=(broker(1), broker(2, epoch=60)))
    counts = ClusterReport().counts(bounced)
    assert counts["under_replicated"] == 1
    assert [count["out_of_sync"] for count in counts["brokers"]] == [0, 1]


def test_one_that_is_only_being_added_is_not_missed_yet() -> None:
    counts = ClusterReport().counts(image(topic("a", partition(0, 1, 2, isr=(1,), adding=(2,)))))
    assert (counts["under_replicated"], counts["moving"]) == (0, 1)


def test_without_a_living_leader_a_partition_is_offline() -> None:
    gone = topic("a", partition(0, 3), partition(1, 1, leader=-1))
    counts = ClusterReport().counts(image(gone, brokers=(broker(1), broker(2))))
    assert counts["offline"] == 2
    dead = counts["brokers"][-1]
    assert (dead["id"], dead["live"], dead["replicas"]) == (3, False, 1)


def test_partitions_of_a_leader_that_is_gone_are_undecided_until_the_controller_has_acted() -> None:
    waits = topic("a", partition(0, 3, 1), partition(1, 1, 3), partition(2, 1, leader=-1))
    assert ClusterReport().counts(image(waits, brokers=(broker(1), broker(2))))["undecided"] == 1
    assert ClusterReport().counts(image(waits))["undecided"] == 0
    back = (broker(1), broker(2), broker(3, epoch=60))
    assert ClusterReport().counts(image(waits, brokers=back))["undecided"] == 1


def test_partitions_with_too_few_in_sync_for_acks_all_are_counted() -> None:
    """REP-12."""
    narrow = topic("a", partition(0, 1, 2, isr=(1,)), config={"min.insync.replicas": "2"})
    assert ClusterReport().counts(image(narrow))["under_min_isr"] == 1


@pytest.mark.parametrize("wanted", [1, 2, 3, 2**31 - 1])
@pytest.mark.parametrize("replicas", [(1,), (1, 2), (1, 2, 3)])
def test_more_in_sync_replicas_than_there_are_replicas_refuse_nothing(replicas: tuple[int, ...], wanted: int) -> None:
    """A produce with acks=all succeeds: the number of replicas is the upper bound of the setting (REP-13)."""
    config = {"min.insync.replicas": str(wanted)}
    whole = image(topic("a", partition(0, *replicas), config=config))
    assert ClusterReport().counts(whole)["under_min_isr"] == 0
    narrow = image(topic("a", partition(0, *replicas, isr=(1,)), config=config))
    assert ClusterReport().counts(narrow)["under_min_isr"] == (min(wanted, len(replicas)) > 1)
    page = ClusterReport().page(whole, state="under_min_isr", broker=None, after="", limit=10)
    assert page["partitions"] == []


def test_a_topic_that_is_being_deleted_is_not_counted() -> None:
    assert ClusterReport().counts(image(topic("a", partition(0, 1), deleting=True)))["partitions"] == 0


def test_pages_follow_each_other_and_miss_nothing() -> None:
    topics = [topic(f"t{number}", *(partition(index, 1, 2) for index in range(3))) for number in range(5)]
    shown, report = image(*topics), ClusterReport()
    seen, after = [], ""
    while True:
        page = report.page(shown, state="all", broker=None, after=after, limit=4)
        assert len(page["partitions"]) <= 4
        seen += [(line["topic"], line["partition"]) for line in page["partitions"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == [(f"t{number}", index) for number in range(5) for index in range(3)]


def test_a_page_shows_only_the_state_and_the_broker_asked_for() -> None:
    shown = image(
        topic("a", partition(0, 1, 2, isr=(1,)), partition(1, 1, 3)),
        topic("b", partition(0, 2, leader=-1, isr=(2,)), partition(1, 3, 1, removing=(3,))),
    )

    def keys(state: str, broker: int | None = None) -> list[tuple[str, int]]:
        page = ClusterReport().page(shown, state=state, broker=broker, after="", limit=50)
        return [(line["topic"], line["partition"]) for line in page["partitions"]]

    assert keys("under_replicated") == [("a", 0)]
    assert keys("offline") == [("b", 0)]
    assert keys("moving") == [("b", 1)]
    assert keys("all", broker=3) == [("a", 1), ("b", 1)]
    with pytest.raises(ValueError, match="nonsense"):
        keys("nonsense")


def test_counts_are_made_again_only_for_another_image() -> None:
    shown, report = image(topic("a", partition(0, 1))), ClusterReport()
    assert report.counts(shown) is report.counts(shown)
    assert report.counts(image())["partitions"] == 0


def test_the_version_of_each_live_broker_is_reported() -> None:
    one = BrokerInfo(1, "127.0.0.1", 1, 1, None, 10, software_version="1.1.0")
    counts = ClusterReport().counts(image(topic("a", partition(0, 1, 2, 3)), brokers=(one, broker(2))))
    assert [share["version"] for share in counts["brokers"]] == ["1.1.0", "", None]

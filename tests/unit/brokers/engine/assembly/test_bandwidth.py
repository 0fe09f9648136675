"""Shares follow the metadata: leaders, live brokers, and the bandwidth of instances (CKA-27, CKA-35, CKA-43)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from brokers.contract.documents import InstanceDocument
from brokers.engine.assembly.bandwidth import Bandwidth
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.client_shares import CONSUME, PRODUCE

MINE = "ins-aaaaaaaa"
BOUGHT_BPS = 60_000_000


def broker(id: int, epoch: int = 1, rack: str | None = None) -> BrokerInfo:
    return BrokerInfo(id=id, host="127.0.0.1", port=9_000 + id, admin_port=-1, rack=rack, epoch=epoch)


def topic(*leaders: int, leader_epoch: int = 0) -> TopicImage:
    partitions = tuple(
        PartitionImage(index, (1, 2, 3), leader=leader, leader_epoch=leader_epoch)
        for index, leader in enumerate(leaders)
    )
    return TopicImage(f"{MINE}.t", "t", MINE, b"t" * 16, partitions, {})


def image(*leaders: int, live: tuple[int, ...] = (1, 2, 3), epoch: int = 1, leader_epoch: int = 0) -> ClusterImage:
    document = InstanceDocument(generation=1, produce_bps=BOUGHT_BPS, consume_bps=BOUGHT_BPS, capacity_bytes=1)
    return ClusterImage("test").with_changes(
        ImageDelta(
            brokers={id: broker(id, epoch) for id in live},
            topics={f"{MINE}.t": topic(*leaders, leader_epoch=leader_epoch)},
            instances={MINE: document},
        )
    )


@pytest.fixture
def services() -> Any:
    return SimpleNamespace(
        broker_id=1,
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        accounting=SimpleNamespace(accountings=AccountingRegistry()),
        metadata=SimpleNamespace(bump_version=lambda: None),
    )


def share(services: Any) -> float | None:
    limiter = services.accounting.accountings.get_or_create(MINE).shares.produce
    return None if limiter is None else limiter.limit_per_s


def test_a_share_is_the_part_of_the_partitions(services: Any) -> None:
    bandwidth = Bandwidth(services)
    bandwidth.on_image(ClusterImage("test"), image(1, 1, 2, 2, 3, 3))
    assert share(services) == 20_000_000
    bandwidth.on_image(ClusterImage("test"), image(2, 3))
    assert share(services) == 20_000_000, "requests that it refuses count as if it were one more of those that lead"


def test_a_broker_that_is_gone_has_no_part_from_then_on(services: Any) -> None:
    bandwidth = Bandwidth(services)
    before = image(1, 1, 2, 2, 3, 3)
    bandwidth.on_image(ClusterImage("test"), before)
    bandwidth.on_image(before, before.with_changes(ImageDelta(brokers={1: broker(1), 2: broker(2)})))
    assert share(services) == 30_000_000


def test_partitions_led_here_have_a_limit_also_while_this_broker_is_not_registered(services: Any) -> None:
    bandwidth = Bandwidth(services)
    bandwidth.on_image(ClusterImage("test"), image(1, 2, live=(2,)))
    assert share(services) == 30_000_000


def test_another_incarnation_or_leader_is_another_basis_though_the_counts_are_the_same(services: Any) -> None:
    bandwidth = Bandwidth(services)
    seen = set()
    for shown in (image(1, 2), image(1, 2, epoch=2), image(1, 2, leader_epoch=3)):
        bandwidth.on_image(ClusterImage("test"), shown)
        seen.add(bandwidth.layouts[MINE].basis(BOUGHT_BPS))
    assert len(seen) == 3


def test_an_instance_that_is_gone_is_forgotten(services: Any) -> None:
    bandwidth = Bandwidth(services)
    shown = image(1, 2)
    bandwidth.on_image(ClusterImage("test"), shown)
    bandwidth.on_image(shown, shown.with_changes(ImageDelta(instances={MINE: None})))
    assert not bandwidth.layouts


def in_zones(shown: ClusterImage, **zones: str) -> ClusterImage:
    """Puts brokers 1, 2 and 3 into the zones given for `b1`, `b2` and `b3`."""
    brokers = {int(name[1:]): broker(int(name[1:]), rack=zone) for name, zone in zones.items()}
    return shown.with_changes(ImageDelta(brokers=brokers))


def consumed(services: Any) -> float:
    limiter = services.accounting.accountings.get_or_create(MINE).shares.consume
    return float(limiter.limit_per_s)


def test_consumers_that_may_read_from_followers_have_a_part_at_each_replica(services: Any) -> None:
    bandwidth = Bandwidth(services)
    bandwidth.on_image(ClusterImage("test"), in_zones(image(2, 2, 3), b1="a", b2="b", b3="b"))
    shares = services.accounting.accountings.get_or_create(MINE).shares
    assert shares.reads_followers
    assert consumed(services) == 20_000_000
    assert share(services) == 20_000_000, "as one more of those that lead"
    produce, consume = bandwidth.layout(MINE, PRODUCE), bandwidth.layout(MINE, CONSUME)
    assert produce is not None
    assert consume is not None
    assert (dict(produce.leaders), dict(consume.leaders)) == ({2: 2, 3: 1}, {1: 3, 2: 3, 3: 3})


def test_where_all_brokers_are_in_one_zone_or_none_consumers_have_the_parts_of_leaders(services: Any) -> None:
    for shown in (image(1, 1, 1, 2), in_zones(image(1, 1, 1, 2), b1="a", b2="a", b3="a")):
        bandwidth = Bandwidth(services)
        bandwidth.on_image(ClusterImage("test"), shown)
        assert not services.accounting.accountings.get_or_create(MINE).shares.reads_followers
        assert consumed(services) == 45_000_000
        assert bandwidth.layout(MINE, CONSUME) is bandwidth.layout(MINE, PRODUCE)


def test_the_last_other_zone_that_goes_takes_the_followers_with_it(services: Any) -> None:
    bandwidth = Bandwidth(services)
    before = in_zones(image(1, 2, 3), b1="a", b2="a", b3="b")
    bandwidth.on_image(ClusterImage("test"), before)
    assert services.accounting.accountings.get_or_create(MINE).shares.reads_followers
    bandwidth.on_image(
        before, before.with_changes(ImageDelta(brokers={1: broker(1, rack="a"), 2: broker(2, rack="a")}))
    )
    assert not services.accounting.accountings.get_or_create(MINE).shares.reads_followers
    assert consumed(services) == 30_000_000


def test_a_selector_of_leaders_leaves_all_to_the_leaders(services: Any) -> None:
    bandwidth = Bandwidth(services, selects_by_rack=False)
    bandwidth.on_image(ClusterImage("test"), in_zones(image(1, 2, 3), b1="a", b2="b", b3="c"))
    assert not services.accounting.accountings.get_or_create(MINE).shares.reads_followers

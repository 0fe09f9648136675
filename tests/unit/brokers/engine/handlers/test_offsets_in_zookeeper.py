"""Version 0 of OffsetCommit and OffsetFetch: offsets in ZooKeeper, as for consumers before 0.8.2 (GRP-40, DEC-10,
ZK-21).
"""

from __future__ import annotations

import pytest

from brokers.contract import paths
from brokers.contract.documents import change_to_json
from brokers.engine.cluster import legacy_offsets
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.tree import Create, Delete, Set
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.offsets_asking import commit, coordinator_ready, fetch, offsets_of

ORDERS = ("orders", 0)
NODE = f"/consumers/{MINE}.g/offsets/{MINE}.orders/0"


async def line(house: House, key: tuple[str, int] = ORDERS, group: str = "g") -> tuple[int, int]:
    _, lines = await fetch(house.mine, {key[0]: [key[1]]}, version=0, group=group)
    return lines[key].committed_offset, lines[key].error_code


async def test_a_committed_offset_is_a_text_in_zookeeper_and_is_fetched(house: House) -> None:
    await house.topic("orders", 2)

    assert await commit(house.mine, {ORDERS: 5, ("orders", 1): 6}, version=0) == {ORDERS: 0, ("orders", 1): 0}
    assert await commit(house.mine, {ORDERS: 7}, version=0) == {ORDERS: 0}

    node = await house.broker.tree.get(NODE)
    assert node is not None
    assert node.data == b"7"
    assert await line(house) == (7, 0)
    assert await line(house, ("orders", 1)) == (6, 0)


async def test_an_offset_that_an_old_consumer_wrote_itself_is_fetched(house: House) -> None:
    await house.topic("orders")
    await commit(house.mine, {ORDERS: 5}, version=0)
    await house.broker.tree.commit([Set(NODE, b"42", None)])

    assert await line(house) == (42, 0)


async def test_nothing_there_is_an_error_in_this_version(house: House) -> None:
    await house.topic("orders")
    nothing = (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    assert await line(house) == nothing
    assert await line(house, ("orders", 9)) == nothing
    assert await line(house, ("nowhere", 0)) == nothing
    assert await line(house, group="") == nothing
    await commit(house.mine, {ORDERS: 5}, version=0)
    await house.broker.tree.commit([Set(NODE, b"no number", None)])
    assert await line(house) == nothing


async def test_the_two_homes_of_offsets_do_not_know_each_other(house: House) -> None:
    await house.topic("orders")
    await coordinator_ready(house.mine)
    await commit(house.mine, {ORDERS: 5}, version=0)
    await commit(house.mine, {ORDERS: 9}, version=1)

    assert await line(house) == (5, 0)
    assert await offsets_of(house.mine) == {ORDERS: 9}


async def test_odd_group_ids_stay_below_their_own_node(house: House) -> None:
    await house.topic("orders")
    odd = "../a/b ü"

    assert await commit(house.mine, {ORDERS: 5}, version=0, group=odd) == {ORDERS: 0}

    assert await line(house, group=odd) == (5, 0)
    assert await house.broker.tree.children("/consumers") == [f"{MINE}...%2Fa%2Fb%20%C3%BC"]


async def test_invalid_commits_are_refused_and_the_rest_is_written(house: House) -> None:
    await house.topic("orders")

    codes = await commit(house.mine, {ORDERS: 5, ("orders", 9): 5, ("nowhere", 0): 5}, version=0)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {ORDERS: 0, ("orders", 9): unknown, ("nowhere", 0): unknown}
    too_large = await commit(house.mine, {ORDERS: 6}, version=0, metadata="m" * 4_097)
    assert too_large == {ORDERS: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert await line(house) == (5, 0)


async def test_an_instance_keeps_a_limited_number_of_groups_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_offsets, "GROUPS_PER_INSTANCE_MAX", 1)
    await house.topic("orders")
    await house.broker.create_topic(house.theirs, "orders")
    await commit(house.mine, {ORDERS: 5}, version=0)

    assert await commit(house.mine, {ORDERS: 5}, version=0, group="h") == {ORDERS: ErrorCode.POLICY_VIOLATION}
    assert await commit(house.mine, {ORDERS: 6}, version=0) == {ORDERS: 0}
    assert await commit(house.theirs, {ORDERS: 6}, version=0) == {ORDERS: 0}


async def test_a_lost_race_is_run_again(house: House) -> None:
    await house.topic("orders", 2)
    await commit(house.mine, {ORDERS: 5}, version=0)
    tree, ensemble = house.broker.tree, house.broker.ensemble
    other = ensemble.connect()
    raced: list[object] = []

    def race(operations: object) -> None:
        if not raced:
            raced.append(operations)
            node = ensemble.nodes[NODE]
            node.data, node.version = b"6", node.version + 1

    tree.before_commit = race
    assert await commit(house.mine, {ORDERS: 7, ("orders", 1): 8}, version=0) == {ORDERS: 0, ("orders", 1): 0}
    tree.before_commit = None

    assert raced
    node = await other.get(NODE)
    assert node is not None
    assert node.data == b"7"


async def test_a_commit_times_out_without_zookeeper(house: House) -> None:
    await house.topic("orders")
    await commit(house.mine, {ORDERS: 5}, version=0)

    def gone(_: object) -> None:
        raise StoreUnavailable("nobody answers")

    house.broker.tree.before_commit = gone
    assert await commit(house.mine, {ORDERS: 6}, version=0) == {ORDERS: ErrorCode.REQUEST_TIMED_OUT}
    house.broker.tree.before_commit = None
    assert await line(house) == (5, 0)


async def test_offsets_of_a_deleted_instance_are_removed(house: House) -> None:
    await house.topic("orders")
    await house.broker.create_topic(house.theirs, "orders")
    await commit(house.mine, {ORDERS: 5}, version=0)
    await commit(house.theirs, {ORDERS: 6}, version=0)
    tree, nodes = house.broker.tree, house.broker.ensemble.nodes
    await tree.commit([Create("/consumers/of-the-cluster")])

    announce = Create(paths.CHANGE_PREFIX, change_to_json([f"instances/{MINE}"]), sequence=True)
    await tree.commit([Delete(paths.instance(MINE), None), announce])

    await house.broker.until(lambda: f"/consumers/{MINE}.g" not in nodes)
    assert sorted(await tree.children("/consumers") or ()) == ["ins-bbbbbbbb.g", "of-the-cluster"]
    assert await house.broker.broker.services.metadata.store.remove_orphaned_legacy_offsets() == 0

"""ACLs in ZooKeeper: written by compare-and-set, counted together, announced; an unreadable document denies
everything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from brokers.contract import paths
from brokers.contract.acls import (
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.contract.documents import change_to_json
from brokers.contract.instance_limits import NODE_BYTES
from brokers.engine.cluster import acl_writes, errors
from brokers.engine.cluster.instance_documents import ACLS, change_entry
from brokers.engine.cluster.tree import Create, Set
from tests.testkit.cluster import Member, run_pending_callbacks
from tests.testkit.fake_store import FakeEnsemble
from tests.unit.brokers.engine.cluster.test_watcher import INSTANCES

MINE = INSTANCES[0]
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
ALL_ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.PREFIXED)


def allowed(user: str, operation: AclOperation = AclOperation.READ) -> AclEntry:
    return AclEntry(f"User:{user}", "*", operation, Permission.ALLOW)


@pytest.fixture
async def member() -> AsyncIterator[Member]:
    """Returns a member of a cluster that has the instance."""
    member = Member(FakeEnsemble().connect(), broker_id=1, controls=False)
    await member.start()
    await member.publish_instance(MINE, [1])
    yield member
    await member.stop()


async def add(member: Member, pattern: ResourcePattern, *entries: AclEntry) -> int | None:
    return await member.store.add_acls(MINE, {pattern: entries})


async def remove(member: Member, pattern: ResourcePattern, *entries: AclEntry) -> int | None:
    return await member.store.remove_acls(MINE, {pattern: entries})


def shown(member: Member) -> dict[ResourcePattern, frozenset[AclEntry]]:
    return {document.pattern: document.entries for document in member.image.acls.of_instance(MINE).values()}


async def counted(member: Member) -> int:
    node = await member.tree.get(paths.instance_acls(MINE))
    assert node is not None
    body: dict[str, int] = json.loads(node.data)
    names = await member.tree.children(paths.instance_acls(MINE)) or []
    stored = {path: await member.tree.get(path) for path in (paths.instance_acl(MINE, name) for name in names)}
    assert body["bytes"] == sum(len(path) + len(each.data) + NODE_BYTES for path, each in stored.items() if each)
    return body["entries"]


async def test_written_entries_are_in_the_image_with_their_announced_change(member: Member) -> None:
    change = await add(member, ORDERS, allowed("a"), allowed("b"))
    assert change is not None
    image = await member.until(lambda image: image.config_change >= change)
    assert shown(member) == {ORDERS: {allowed("a"), allowed("b")}}
    assert image.acls.of_instance(INSTANCES[1]) == {}

    change = await remove(member, ORDERS, allowed("a"))
    assert change is not None
    await member.until(lambda image: image.config_change >= change)
    assert shown(member) == {ORDERS: {allowed("b")}}
    assert await counted(member) == 1


async def test_a_document_is_deleted_with_its_last_entry(member: Member) -> None:
    await add(member, ORDERS, allowed("a"))
    await add(member, ALL_ORDERS, allowed("a"))
    await remove(member, ORDERS, allowed("a"))
    assert await member.tree.children(paths.instance_acls(MINE)) == [ALL_ORDERS.node_name]
    assert await counted(member) == 1


async def test_adding_existing_and_removing_missing_entries_changes_nothing(member: Member) -> None:
    assert await remove(member, ORDERS, allowed("a")) is None
    await add(member, ORDERS, allowed("a"))
    assert await add(member, ORDERS, allowed("a")) is None
    assert await remove(member, ALL_ORDERS, allowed("a")) is None
    assert await counted(member) == 1


async def test_concurrently_added_entries_are_all_kept(member: Member) -> None:
    """Added by two brokers, neither of which has seen the other's write."""
    other = Member(member.tree.ensemble.connect(), broker_id=2, controls=False)  # type: ignore[attr-defined]
    await other.start()

    async def each(member: Member) -> None:
        """Adds the entries one after the other, as requests of an instance are executed."""
        for number in range(6):
            await add(member, ORDERS, allowed(f"{member.broker_id}-{number}"))

    await asyncio.gather(each(member), each(other))
    await run_pending_callbacks()
    assert len(shown(member)[ORDERS]) == await counted(member) == 12
    await other.stop()


async def test_the_number_of_entries_of_an_instance_is_limited_on_every_broker(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_writes, "ENTRIES_MAX", 3)
    await add(member, ORDERS, allowed("a"), allowed("b"))

    with pytest.raises(errors.PolicyViolation, match="more than 3"):
        await member.store.add_acls(MINE, {ORDERS: [allowed("c")], ALL_ORDERS: [allowed("c")]})

    await run_pending_callbacks()
    assert shown(member) == {ORDERS: {allowed("a"), allowed("b")}}
    await add(member, ALL_ORDERS, allowed("c"))
    # An instance with the maximum number of entries can replace and remove them.
    assert await add(member, ALL_ORDERS, allowed("c")) is None
    await remove(member, ORDERS, allowed("a"))
    await add(member, ORDERS, allowed("d"))
    assert await counted(member) == 3


async def test_the_size_of_all_entries_of_an_instance_is_limited(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(member, ORDERS, allowed("a"))
    monkeypatch.setattr(acl_writes, "ACL_BYTES_MAX", 10)
    with pytest.raises(errors.PolicyViolation, match="weigh more than 10 bytes"):
        await add(member, ORDERS, allowed("b"))
    await remove(member, ORDERS, allowed("a"))


async def test_a_thousand_entries_of_one_pattern_fit_into_its_node(member: Member) -> None:
    """With the longest names: ZooKeeper accepts no request over 1 MiB."""
    entries = [
        AclEntry(f"User:{number:04}{'ü' * 35}", "*", AclOperation.ALL, Permission.ALLOW) for number in range(1_000)
    ]
    await add(member, ORDERS, *entries)
    node = await member.tree.get(paths.instance_acl(MINE, ORDERS.node_name))
    assert node is not None and len(node.data) < 512 * 1024


@pytest.mark.parametrize("data", [b"", b"{}", b"not json", b'{"resource_type": 2}'])
async def test_an_unreadable_document_denies_everything_and_can_be_removed(member: Member, data: bytes) -> None:
    await add(member, ORDERS, allowed("a"))
    await run_pending_callbacks()
    path, change = paths.instance_acl(MINE, ORDERS.node_name), change_entry(MINE, ACLS, ORDERS.node_name)
    await member.tree.commit(
        [Set(path, data, None), Create(paths.CHANGE_PREFIX, change_to_json([change]), sequence=True)]
    )
    closed = AclDocument.closed(ORDERS.node_name)
    await member.until(lambda image: image.acls.of_instance(MINE).get(ORDERS.node_name) == closed)

    # Also for a broker that reads it for the first time.
    assert (await member.watcher.load()).acls.of_instance(MINE)[ORDERS.node_name] == closed
    # Additions do not make it readable.
    await add(member, ORDERS, allowed("b"))
    await run_pending_callbacks()
    assert shown(member) == {ORDERS: closed.entries | {allowed("b")}}
    await remove(member, ORDERS, allowed("b"), *closed.entries)
    await run_pending_callbacks()
    assert shown(member) == {}
    assert await counted(member) == 0


async def test_a_node_of_another_kind_is_ignored(member: Member) -> None:
    """Written by a later version, about resources that this broker does not check."""
    await add(member, ORDERS, allowed("a"))
    await member.tree.commit([Create(paths.instance_acl(MINE, "6:3:token"), b"{}")])
    assert list((await member.watcher.load()).acls.of_instance(MINE)) == [ORDERS.node_name]


def test_patterns_are_written_in_parts() -> None:
    wanted = {ResourcePattern(ResourceType.TOPIC, f"t{n}", PatternType.LITERAL): [allowed("a")] for n in range(120)}
    parts = acl_writes.split_into_transactions(wanted)
    assert [len(part) for part in parts] == [50, 50, 20]
    assert {pattern: entries for part in parts for pattern, entries in part.items()} == wanted

"""The image converges: after any writes in any bursts it equals a fresh load (ZK-32, ZK-33)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.contract import documents, paths
from brokers.contract.acls import (
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.contract.documents import InstanceTopicDocument, PartitionStateDocument
from brokers.contract.users import UserDocument
from brokers.engine.cluster import changes, errors, loader, watcher
from brokers.engine.cluster.broker_configs import BrokerConfigs
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.instance_documents import ACLS, USERS, change_entry
from brokers.engine.cluster.quota_image import IpEntity, QuotaEntity
from brokers.engine.cluster.topic_plans import TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import Create, Delete, Operation, Set, Tree
from brokers.engine.cluster.watcher import INSTANCES_PER_IMAGE, READS_PER_S, ClusterWatcher, Part
from quotas.addresses import CONNECTION_CREATION_RATE
from tests.testkit.cluster import CLUSTER_ID, Member, instance_document, is_complete, run_pending_callbacks
from tests.testkit.fake_store import FakeEnsemble

INSTANCES = ("ins-aaaaaaaa", "ins-bbbbbbbb")
EVERYWHERE_WITHIN_S = 5.0


async def fresh_load(ensemble: FakeEnsemble) -> ClusterImage:
    tree = ensemble.connect()
    current = CurrentImage(ClusterImage(CLUSTER_ID))
    return await ClusterWatcher(tree, current).load()


async def image_everywhere(ensemble: FakeEnsemble, *members: Member) -> ClusterImage:
    """Returns the image of a fresh load once all members show it, or the last one: their reads are rate-limited."""
    deadline_s = time.monotonic() + EVERYWHERE_WITHIN_S
    while True:
        await run_pending_callbacks()
        expected = await fresh_load(ensemble)
        is_everywhere = is_complete(expected) and all(member.image == expected for member in members)
        if is_everywhere or time.monotonic() > deadline_s:
            return expected
        await asyncio.sleep(1 / READS_PER_S)


Step = Callable[[Member], Awaitable[object]]

KINDS = (
    *("create", "delete", "grow", "config", "allow", "state"),
    *("quota", "address", "user", "acl", "instance", "suspend", "broker"),
)
names = st.sampled_from(["orders", "a.b", "h.x", "x" * 240])
instances = st.sampled_from(INSTANCES)
maybe_names = st.none() | st.sampled_from(["alice", "<default>", "用户", "a/b"])


@st.composite
def steps(draw: st.DrawFn) -> Step:
    instance_id, name = draw(instances), draw(names)
    kind = draw(
        st.sampled_from(
            [
                "create",
                "delete",
                "grow",
                "config",
                "quota",
                "address",
                "instance",
                "allow",
                "suspend",
                "broker",
                "state",
                "user",
                "acl",
            ]
        )
    )
    amount = draw(st.integers(1, 4))
    user, client = draw(maybe_names), draw(maybe_names)
    has_user = draw(st.booleans())

    async def step(member: Member) -> object:
        store, image = member.store, member.image
        if kind == "create":
            return await store.create_topic(image, TopicSpec(instance_id, name, partitions=amount))
        if kind == "delete":
            return await store.delete_topic(image, instance_id=instance_id, name=name)
        if kind == "grow":
            return await store.create_partitions(image, TopicGrowth(instance_id, name, total=amount))
        if kind == "config":
            return await store.alter_topic_config(
                image, instance_id=instance_id, name=name, change=lambda config: {**config, "retention.ms": str(amount)}
            )
        if kind == "broker":
            broker_id = None if has_user else amount
            return await store.alter_broker_config(broker_id, lambda config: {**config, f"key{len(name)}": str(amount)})
        if kind == "quota":
            entity = QuotaEntity(has_user, user if has_user else None, True, client)
            limit = None if amount == 1 else float(amount)
            return await store.alter_client_quotas(
                image, instance_id=instance_id, entity=entity, changes={"producer_byte_rate": limit}
            )
        if kind == "address":
            changes = {CONNECTION_CREATION_RATE: None if amount == 1 else float(amount)}
            address = IpEntity(None if has_user else f"10.0.0.{amount}")
            return await store.alter_client_quotas(image, instance_id=instance_id, entity=address, changes=changes)
        if kind == "user":
            return await set_user(member, instance_id, user or "bob", disabled=has_user, is_there=amount > 1)
        if kind == "acl":
            return await set_acl(member, instance_id, user or "bob", entries=amount - 1)
        if kind == "state":
            return await write_state(member, instance_id, name, amount)
        if kind == "allow":
            return await allow(member, instance_id, name, f"10.0.0.{amount}")
        if kind == "suspend":
            member.tree.ensemble.suspend(member.tree)
            return member.tree.ensemble.resume(member.tree)
        return await publish(member, instance_id, produce_bps=amount)

    return step


async def publish(member: Member, instance_id: str, **fields: object) -> None:
    document = instance_document([1], **fields).to_json()
    path = paths.instance(instance_id)
    node = await member.tree.get(path)
    write = Create(path, document) if node is None else Set(path, document, node.version)
    change = Create(paths.CHANGE_PREFIX, documents.change_to_json([f"instances/{instance_id}"]), sequence=True)
    await member.tree.commit([write, change])


async def write_state(member: Member, instance_id: str, name: str, index: int) -> None:
    """Writes the partition state that a leader would write, based on its image."""
    topic = member.image.instances[instance_id].topic(name)
    if topic is None or index >= len(topic.partitions) or topic.partitions[index].version is None:
        return
    shown = topic.partitions[index]
    document = PartitionStateDocument(
        leader=shown.leader, leader_epoch=shown.leader_epoch + 1, controller_epoch=1, isr=shown.isr
    )
    await member.store.write_isrs([StateWrite(topic.name, index, document, shown.version, identity=topic.identity)])


async def allow(member: Member, instance_id: str, name: str, address: str) -> None:
    """Writes an IP allow-list like the control plane."""
    topic = member.image.instances[instance_id].topic(name)
    if topic is None:
        return
    path = paths.instance_topic(instance_id, topic.name)
    document = InstanceTopicDocument(name=name, produce_ips=(address,)).to_json()
    node = await member.tree.get(path)
    parent = paths.instance_topics(instance_id)
    if await member.tree.get(parent) is None:
        await member.tree.commit([Create(parent)])
    write = Create(path, document) if node is None else Set(path, document, node.version)
    await member.tree.commit([write, changes.topics_announcement([topic.name])])


async def set_user(member: Member, instance_id: str, name: str, *, disabled: bool, is_there: bool) -> None:
    document = UserDocument(name=name, created_at_ms=1, disabled=disabled) if is_there else None
    await write_document(member, instance_id, USERS, paths.sanitise(name), document)


async def set_acl(member: Member, instance_id: str, principal: str, *, entries: int) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.PREFIXED)
    operations = list(AclOperation)[:entries]
    every = frozenset(AclEntry(f"User:{principal}", "*", operation, Permission.ALLOW) for operation in operations)
    document = AclDocument(pattern=pattern, entries=every) if every else None
    await write_document(member, instance_id, ACLS, pattern.node_name, document)


async def write_document(
    member: Member, instance_id: str, kind: str, node_name: str, document: UserDocument | AclDocument | None
) -> None:
    parent = f"{paths.instance(instance_id)}/{kind}"
    path = f"{parent}/{node_name}"
    if await member.tree.get(parent) is None:
        await member.tree.commit([Create(parent)])
    node = await member.tree.get(path)
    if document is None and node is None:
        return
    if document is None:
        write: Operation = Delete(path, None)
    else:
        write = Create(path, document.to_json()) if node is None else Set(path, document.to_json(), node.version)
    change = documents.change_to_json([change_entry(instance_id, kind, node_name)])
    await member.tree.commit([write, Create(paths.CHANGE_PREFIX, change, sequence=True)])


@settings(max_examples=60)
@given(st.lists(st.tuples(steps(), st.booleans()), max_size=20))
def test_any_sequence_of_writes_ends_in_the_image_of_a_fresh_load(plan: list[tuple[Step, bool]]) -> None:
    async def play() -> None:
        ensemble = FakeEnsemble()
        member, reader = (
            Member(ensemble.connect(), broker_id=1),
            Member(ensemble.connect(), broker_id=2, controls=False),
        )
        await member.start()
        await reader.start()
        for instance_id in INSTANCES:
            await publish(member, instance_id)
        await run_pending_callbacks()
        for step, let_it_apply in plan:
            try:
                await step(member)
            except errors.Refused:
                continue
            if let_it_apply:
                await run_pending_callbacks()
        expected = await image_everywhere(ensemble, member, reader)
        assert member.image == expected
        assert reader.image == expected
        assert is_complete(expected)
        for watching in (member, reader):
            await watching.stop()
            assert watching.fatal == []

    asyncio.run(play())


async def test_a_burst_of_changes_becomes_few_images() -> None:
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1)
    await member.start()
    await publish(member, INSTANCES[0])
    await run_pending_callbacks()
    images = []
    member.current.subscribe(lambda _before, after: images.append(after))
    image = member.image
    await asyncio.gather(
        *(member.store.create_topic(image, TopicSpec(INSTANCES[0], f"t{n}", partitions=1)) for n in range(100))
    )
    await member.until(lambda image: len(image.topics) == 102 and is_complete(image))
    assert len(images) < 20
    await member.stop()


async def test_very_many_new_instances_are_published_in_images_of_a_few_hundred() -> None:
    """Subscribers process each new instance of an image without yielding to the event loop."""
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1, controls=False)
    await member.start()
    ids = [f"ins-{number:08}" for number in range(2 * INSTANCES_PER_IMAGE + 1)]
    sizes = [0]
    member.current.subscribe(lambda _before, after: sizes.append(len(after.instances)))
    for id in ids:
        await member.tree.commit([Create(paths.instance(id), instance_document([1]).to_json())])
    announced = documents.change_to_json([f"instances/{id}" for id in ids])
    await member.tree.commit([Create(paths.CHANGE_PREFIX, announced, sequence=True)])
    await member.until(lambda image: len(image.instances) == len(ids))
    assert max(after - before for before, after in pairwise(sizes)) <= INSTANCES_PER_IMAGE
    assert member.image == await fresh_load(ensemble)
    await member.stop()


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/topics/ins-aaaaaaaa.orders",
        "/config/topics/ins-aaaaaaaa.orders",
        "/brokers/topics/ins-aaaaaaaa.orders/partitions/0/state",
        "/ckafka/instances/ins-aaaaaaaa",
    ],
)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"partitions": 7}', b"\xff", b"null", b'{"partitions":{"x":[]}}'])
async def test_a_malformed_document_changes_nothing_and_stops_no_broker(path: str, body: bytes) -> None:
    """QUO-75, for every kind of document."""
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1, controls=False)
    await member.start()
    await publish(member, INSTANCES[0])
    await member.until(lambda image: INSTANCES[0] in image.instances)
    await member.store.create_topic(member.image, TopicSpec(INSTANCES[0], "orders", partitions=1))
    await run_pending_callbacks()
    state = PartitionStateDocument(leader=1, leader_epoch=0, controller_epoch=1, isr=(1,)).to_json()
    parents = [f"/brokers/topics/ins-aaaaaaaa.orders/{part}" for part in ("partitions", "partitions/0")]
    await member.tree.commit(
        [
            *map(Create, parents),
            Create(f"{parents[1]}/state", state),
            changes.topics_announcement(["ins-aaaaaaaa.orders"]),
        ]
    )
    await run_pending_callbacks()
    before = member.image
    assert before.instances[INSTANCES[0]].topics[b"orders"].partitions[0].leader == 1
    if path.startswith("/config") and body == b"":
        return
    change = documents.change_to_json(["topics/ins-aaaaaaaa.orders", f"instances/{INSTANCES[0]}"])
    await member.tree.commit([Set(path, body, None), Create(paths.CHANGE_PREFIX, change, sequence=True)])
    await member.tree.commit([Create(paths.CHANGE_PREFIX, body, sequence=True)])
    await member.tree.commit([Create(paths.CONFIG_CHANGE_PREFIX, body, sequence=True)])
    await run_pending_callbacks()
    after = member.image
    if not (path.startswith("/config") and body == b'{"partitions": 7}'):
        assert after.topics == before.topics
    assert after.instances[INSTANCES[0]].document == before.instances[INSTANCES[0]].document
    await publish(member, INSTANCES[1])
    await member.until(lambda image: INSTANCES[1] in image.instances)
    await member.stop()
    assert member.fatal == []


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"null"])
async def test_broker_settings_stay_in_force_while_their_document_is_unreadable(body: bytes) -> None:
    """QUO-75, also at the start of a session."""
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1, controls=False)
    await member.start()
    await member.store.alter_broker_config(None, lambda _: {"a": "1"})
    await member.store.alter_broker_config(1, lambda _: {"b": "2"})
    known = BrokerConfigs({"a": "1"}, {1: {"b": "2"}})
    await member.until(lambda image: image.broker_configs == known)
    registered = member.image.brokers
    for id in (None, 1):
        await member.tree.commit(
            [Set(paths.broker_config(id), body, None), changes.config_announcement(paths.broker_config_entity(id))]
        )
    await member.tree.commit([Create(f"{paths.BROKER_CONFIGS}/one", b"{}")])
    await run_pending_callbacks()
    assert member.image.broker_configs == known
    assert member.image.brokers is registered, "the log of settings does not concern registrations"
    member.watcher.mark(Part.EVERYTHING)
    await run_pending_callbacks()
    assert member.image.broker_configs == known
    await member.store.alter_broker_config(1, lambda config: {**config, "c": "3"})
    await member.until(lambda image: image.broker_configs.of_broker(1) == {"c": "3"})
    await member.tree.commit([Delete(paths.broker_config(None), None)])
    member.watcher.mark(Part.EVERYTHING)
    await member.until(lambda image: image.broker_configs.cluster_defaults == {})
    await member.stop()
    assert member.fatal == []


async def overlook_both(ensemble: FakeEnsemble, writer: Member, reader: Member) -> None:
    """The reader is disconnected while both instances are written and the change nodes for them are deleted."""
    ensemble.suspend(reader.tree)
    await run_pending_callbacks()
    for instance_id in INSTANCES:
        await publish(writer, instance_id)
    ensemble.now_ms += 1_000_000
    await writer.store.clean_changes(-10_000_000)


@pytest.mark.parametrize("written_after", [True, False])
async def test_change_nodes_cleaned_before_they_were_read_make_the_reader_read_everything(written_after: bool) -> None:
    ensemble = FakeEnsemble()
    writer, reader = Member(ensemble.connect(), broker_id=1), Member(ensemble.connect(), broker_id=2, controls=False)
    await writer.start()
    await reader.start()
    await writer.until_complete()
    await overlook_both(ensemble, writer, reader)
    if written_after:
        await publish(writer, INSTANCES[1], produce_bps=7)
    ensemble.resume(reader.tree)
    await reader.until(lambda image: INSTANCES[0] in image.instances, 5.0)
    assert (reader.image.instances[INSTANCES[1]].document.produce_bps == 7) is written_after
    for member in (writer, reader):
        await member.stop()


async def test_a_complete_read_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs counted as read when it began, so no other read includes their earlier changes."""
    ensemble = FakeEnsemble()
    writer, reader = Member(ensemble.connect(), broker_id=1), Member(ensemble.connect(), broker_id=2, controls=False)
    await writer.start()
    await reader.start()
    await writer.until_complete()
    monkeypatch.setattr(watcher, "RETRY_DELAY_S", 0.001)
    failures: list[str] = []
    list_entities = loader.list_quota_entities

    async def fails_once(tree: Tree) -> list[str]:
        if failures:
            raise errors.StoreUnavailable(failures.pop())
        return await list_entities(tree)

    monkeypatch.setattr(loader, "list_quota_entities", fails_once)
    await overlook_both(ensemble, writer, reader)
    await publish(writer, INSTANCES[1], produce_bps=7)
    failures.append("the connection was lost")
    ensemble.resume(reader.tree)

    await reader.until(lambda image: INSTANCES[0] in image.instances, 5.0)

    for member in (writer, reader):
        await member.stop()


async def test_a_complete_read_requested_during_another_one_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller was suspended meanwhile (decision 62) and trusts only what was read since."""
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1, controls=False)
    await member.start()
    await run_pending_callbacks()
    list_entities = loader.list_quota_entities
    asked_at: list[int] = []

    async def stands_still(tree: Tree) -> list[str]:
        if not asked_at:
            asked_at.append(member.watcher.loads_started)
            member.watcher.mark(Part.EVERYTHING)
        return await list_entities(tree)

    monkeypatch.setattr(loader, "list_quota_entities", stands_still)
    member.watcher.mark(Part.EVERYTHING)
    await run_pending_callbacks()

    assert member.watcher.last_published_load > asked_at[0]
    await member.stop()


async def test_only_old_change_nodes_are_cleaned() -> None:
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1, controls=False, now_ms=lambda: ensemble.now_ms)
    await member.start()
    await publish(member, INSTANCES[0])
    ensemble.now_ms += 20 * 60 * 1000
    await publish(member, INSTANCES[1])
    await member.until(lambda image: len(image.instances) == 2)
    assert await member.store.clean_changes(15 * 60 * 1000) == 1
    assert await member.tree.children(paths.CHANGES) == ["change_0000000001"]
    await member.stop()


async def test_the_last_image_stays_while_zookeeper_is_unavailable() -> None:
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1)
    await member.start()
    await member.until_complete()
    before = member.image
    ensemble.suspend(member.tree)
    await run_pending_callbacks()
    assert member.image is before
    assert member.session.state.value == "suspended"
    with pytest.raises(errors.StoreUnavailable):
        await member.store.create_topic(member.image, TopicSpec(None, "x", partitions=1))
    ensemble.resume(member.tree)
    await member.create_topic(None, "x", partitions=1)
    await member.stop()


async def test_changes_in_quick_succession_are_read_together() -> None:
    """Each read costs every broker milliseconds, whichever tenant makes the changes."""
    ensemble = FakeEnsemble()
    writer, reader = Member(ensemble.connect(), broker_id=1), Member(ensemble.connect(), broker_id=2, controls=False)
    await writer.start()
    await reader.start()
    await writer.until_complete()
    images: list[ClusterImage] = []
    reader.current.subscribe(lambda _before, after: images.append(after))
    loop = asyncio.get_running_loop()

    began_s = loop.time()
    for number in range(300):
        await publish(writer, INSTANCES[0], produce_bps=number + 1)
    await reader.until(lambda image: image.instances[INSTANCES[0]].document.produce_bps == 300)

    allowed = watcher.READS_BURST + watcher.READS_PER_S * (loop.time() - began_s)
    assert len(images) <= allowed + 2
    for member in (writer, reader):
        await member.stop()

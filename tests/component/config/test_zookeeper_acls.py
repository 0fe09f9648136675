"""Access lists of the embedded ZooKeeper: nothing for strangers on loopback, and lists added to an older tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from brokers.contract.documents import InstanceAck, InstanceTopicDocument
from brokers.contract.oauth import CONFIGURATION
from brokers.contract.zookeeper_access import Credentials, TreeAccess
from brokers.engine.cluster.quota_image import IpEntity, QuotaEntity
from brokers.engine.cluster.tree import Create, Set
from brokers.engine.cluster.zookeeper import Identity, ZooKeeperTree
from brokers.provisioning.publisher import Publisher
from config.embedded.java import Java
from config.embedded.process import StartFailed, free_port, wait_until
from config.embedded.zookeeper import EmbeddedZooKeeper
from config.embedded.zookeeper_acls import ForeignEnsembleAcls, OwnEnsembleAcls
from quotas.addresses import CONNECTION_CREATION_RATE
from tests.testkit.cluster import CLUSTER_ID, Member, instance_document, is_complete
from tests.testkit.oauth import Issuer
from tests.testkit.own_zookeeper import own_zookeeper

START_TIMEOUT_S = 60.0
BROKER, CONTROL, SUPER = (Credentials(user, f"{user}-password") for user in ("broker", "control", "super"))
ACCESS = TreeAccess(broker=BROKER.digest, control=CONTROL.digest)
CLUSTER = "/penstock/cl-1"
TREE = {
    "/penstock": b"",
    CLUSTER: b"",
    f"{CLUSTER}/controller_epoch": b"7",
    f"{CLUSTER}/ckafka": b"",
    f"{CLUSTER}/ckafka/instances": b"",
    f"{CLUSTER}/ckafka/instances/ins-1": b'{"generation": 1}',
    "/somebody-elses": b"too",
}
WRITES: tuple[Callable[[KazooClient, str], Any], ...] = (
    lambda client, path: client.create(f"{path.rstrip('/')}/stranger", b""),
    lambda client, path: client.set(path, b"changed"),
    lambda client, path: client.delete(path),
    lambda client, path: client.set_acls(path, OPEN_ACL_UNSAFE),
)
READS: tuple[Callable[[KazooClient, str], Any], ...] = (
    lambda client, path: client.get(path),
    lambda client, path: client.get_children(path),
    lambda client, path: client.get_acls(path),
)


@contextmanager
def session(address: str, *known: Credentials) -> Iterator[KazooClient]:
    client = KazooClient(hosts=address, auth_data=[item.auth for item in known])
    client.start(timeout=START_TIMEOUT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def serve(home: Path, java: Java, acls: OwnEnsembleAcls | None) -> EmbeddedZooKeeper:
    server = EmbeddedZooKeeper(
        home / "zookeeper", port=free_port(), java=java, log_file=home / "zookeeper.log", acls=acls
    )
    server.start()
    wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)
    return server


def contents(client: KazooClient, top: str) -> dict[str, tuple[bytes, int, int, int]]:
    """Returns data, version and zxids of a node and of all below it."""
    raw, stat = client.get(top)
    result = {top: (raw, stat.version, stat.czxid, stat.mzxid)}
    for name in client.get_children(top):
        result |= contents(client, f"{top.rstrip('/')}/{name}")
    return result


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the state of an earlier version's tree that `upgraded` fills."""
    return {"home": tmp_path_factory.mktemp("guarded")}


@pytest.fixture(scope="module")
def upgraded(before: dict[str, Any], java: Java) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper with access lists over the data of one without."""
    home = before["home"]
    open_server = serve(home, java, None)
    with session(open_server.address) as client:
        for path, raw in TREE.items():
            client.create(path, raw)
        before["tree"] = contents(client, "/penstock")
    open_server.child.stop()
    server = serve(home, java, OwnEnsembleAcls(SUPER, ACCESS))
    # At once: the tests that write come in any order.
    with session(server.address, SUPER) as client:
        before["kept"] = contents(client, "/penstock")
    yield server
    server.child.stop()


def test_a_tree_without_access_lists_keeps_all_it_has(upgraded: EmbeddedZooKeeper, before: dict[str, Any]) -> None:
    assert {path: before["kept"].get(path) for path in before["tree"]} == before["tree"]
    with session(upgraded.address, SUPER) as client:
        assert client.get("/somebody-elses")[0] == b"too"


@pytest.mark.parametrize("known", [(), (Credentials("broker", "guessed"), Credentials("super", "guessed"))])
def test_a_stranger_reads_and_writes_nothing(upgraded: EmbeddedZooKeeper, known: tuple[Credentials, ...]) -> None:
    everywhere = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", *TREE)
    with session(upgraded.address, *known) as client:
        for path in everywhere:
            for call in (*READS, *WRITES):
                with pytest.raises((NoAuthError, KazooException)) as refused:
                    call(client, path)
                # The root and ZooKeeper's own can be removed by nobody.
                assert isinstance(refused.value, NoAuthError) or path in everywhere[:4], (path, refused.value)


def test_a_stranger_learns_nothing_from_the_four_letter_words(upgraded: EmbeddedZooKeeper) -> None:
    with session(upgraded.address) as client:
        for word in (b"dump", b"cons", b"wchp", b"envi", b"mntr", b"conf"):
            assert "not executed because it is not in the whitelist" in client.command(word)


def test_each_role_does_what_is_its_own(upgraded: EmbeddedZooKeeper) -> None:
    instance = f"{CLUSTER}/ckafka/instances/ins-1"
    with session(upgraded.address, BROKER) as broker, session(upgraded.address, CONTROL) as control:
        broker.set(f"{CLUSTER}/controller_epoch", b"8")
        with pytest.raises(NoAuthError):
            broker.set(instance, b'{"generation": 2}')
        with pytest.raises(NoAuthError):
            broker.set_acls(instance, OPEN_ACL_UNSAFE)
        control.set(instance, b'{"generation": 2}')
        with pytest.raises(NoAuthError):
            control.set(f"{CLUSTER}/controller_epoch", b"9")
        assert broker.get(instance)[0] == b'{"generation": 2}'


async def test_nodes_that_a_broker_makes_have_its_access_list(upgraded: EmbeddedZooKeeper) -> None:
    tree = ZooKeeperTree(
        f"{upgraded.address}/penstock/cl-2", session_timeout_ms=6_000, identity=Identity(BROKER, ACCESS)
    )
    await tree.start()
    try:
        await tree.commit([Create("/brokers"), Create("/brokers/topics"), Create("/brokers/topics/ins-1.t", b"{}")])
        await tree.commit([Set("/brokers/topics/ins-1.t", b"[]", None)])
        node = await tree.get("/brokers/topics/ins-1.t")
    finally:
        await tree.stop()
    assert node is not None
    assert node.data == b"[]"

    def stranger() -> None:
        with session(upgraded.address) as client, pytest.raises(NoAuthError):
            client.get("/penstock/cl-2/brokers/topics/ins-1.t")

    await asyncio.to_thread(stranger)


async def test_the_life_of_an_instance_needs_no_right_that_a_role_does_not_have(
    upgraded: EmbeddedZooKeeper, tmp_path: Path, settings: Any
) -> None:
    for name, known in (("CONTROL", CONTROL), ("BROKER", BROKER)):
        file = tmp_path / name
        file.write_text(f"{known.user}:{known.password}\n")
        setattr(settings, f"ZOOKEEPER_{name}_FILE", str(file))
    chroot, instance = f"/penstock/{CLUSTER_ID}", "ins-7k2m9qxa"
    document = instance_document([1])
    with session(upgraded.address, CONTROL) as client:
        publisher = Publisher(client, chroot)
        # The first instance may come before the first broker: then the control plane makes the tree's beginning.
        assert await asyncio.to_thread(publisher.publish_instance, instance, document)
        tree = ZooKeeperTree(f"{upgraded.address}{chroot}", session_timeout_ms=6_000, identity=Identity(BROKER, ACCESS))
        await tree.start()
        member = Member(tree, broker_id=1)
        try:
            await member.start()
            await member.until(lambda image: is_complete(image) and instance in image.instances)
            await member.store.acknowledge_instance(1, instance, InstanceAck(generation=1, port=24_061, listening=True))
            wait = partial(publisher.await_acks, instance, 1, [1], timeout_s=START_TIMEOUT_S)
            assert (await asyncio.to_thread(wait)).is_complete
            topic = await member.create_topic(instance, "orders", partitions=2)
            wanted = InstanceTopicDocument(name="orders", produce_ips=("10.0.0.1",))
            await asyncio.to_thread(publisher.publish_topic, instance, topic.name, wanted)
            limits = {"producer_byte_rate": 1_000.0}
            for entity in (QuotaEntity(True, "alice", True, None), QuotaEntity(False, None, True, "etl")):
                await member.store.alter_client_quotas(
                    member.image, instance_id=instance, entity=entity, changes=limits
                )
            await member.store.alter_client_quotas(
                member.image,
                instance_id=instance,
                entity=IpEntity("192.0.2.1"),
                changes={CONNECTION_CREATION_RATE: 5.0},
            )
            await member.store.delete_topic(member.image, instance_id=instance, name="orders")
            await member.until(lambda image: topic.name not in image.topics)
            taken = Issuer().document()
            assert await asyncio.to_thread(publisher.publish_oauth, instance, taken)
            await member.until(lambda image: image.oauth.of_instance(instance).get(CONFIGURATION) == taken)
            await member.store.request_keys(instance)
            await member.store.request_keys(instance)
            assert await asyncio.to_thread(publisher.key_requests) == [instance]
            await asyncio.to_thread(publisher.forget_key_request, instance)
            assert await asyncio.to_thread(publisher.key_requests) == []
            later = replace(document, generation=2)
            assert await asyncio.to_thread(publisher.publish_instance, instance, later)
            await asyncio.to_thread(publisher.unpublish_instance, instance, later.leased_ports)
            await member.until(lambda image: instance not in image.instances)
            await asyncio.to_thread(publisher.forget_quotas, instance)
            for kind in ("users", "clients", "ips"):
                assert await tree.children(f"/config/{kind}") == []
            await asyncio.to_thread(publisher.forget_acks, instance)
            assert member.fatal == []
            await member.stop()
        finally:
            await tree.stop()
        assert publisher.generations() == {}
    with session(upgraded.address, SUPER) as everything:
        for path in contents(everything, chroot):
            assert {acl.id.id for acl in everything.get_acls(path)[0]} == {BROKER.digest, CONTROL.digest}, path


def test_secrets_that_were_made_anew_are_taken_up_and_nothing_is_written_twice(upgraded: EmbeddedZooKeeper) -> None:
    def versions() -> dict[str, int]:
        with session(upgraded.address, SUPER) as client:
            return {path: client.get_acls(path)[1].aversion for path in ("/", *TREE)}

    first = versions()
    assert OwnEnsembleAcls(SUPER, ACCESS).apply(upgraded.address)
    assert versions() == first
    renewed = TreeAccess(broker=BROKER.digest, control=Credentials("control", "renewed").digest)
    try:
        assert OwnEnsembleAcls(SUPER, renewed).apply(upgraded.address)
        with session(upgraded.address, CONTROL) as client, pytest.raises(NoAuthError):
            client.get(CLUSTER)
        with session(upgraded.address, Credentials("control", "renewed")) as client:
            assert client.get(CLUSTER)[0] == b""
    finally:
        assert OwnEnsembleAcls(SUPER, ACCESS).apply(upgraded.address)


def test_our_trees_in_a_zookeeper_of_somebody_else_are_given_access_lists(tmp_path: Path, java: Java) -> None:
    acls = ForeignEnsembleAcls([CONTROL, BROKER], ACCESS)
    with own_zookeeper(tmp_path, java) as server:
        with session(server.address) as stranger:
            for path, raw in TREE.items():
                stranger.create(path, raw)
            acls.apply(server.address)
            with pytest.raises(NoAuthError):
                stranger.get(CLUSTER)
            assert stranger.get("/somebody-elses")[0] == b"too"
        with session(server.address, BROKER) as broker:
            assert broker.get(f"{CLUSTER}/controller_epoch")[0] == b"7"
        with pytest.raises(StartFailed, match="refuses the credentials"):
            ForeignEnsembleAcls([SUPER], TreeAccess(SUPER.digest, SUPER.digest)).apply(server.address)

"""The admin client over real sockets: authentication, dead connections, and errors. The broker is a small server."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasResponse, DescribeClientQuotasResponse
from kafka.protocol.admin.topics import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from brokers.dataplane import admin_client
from brokers.dataplane.client_quotas import KafkaQuotaAdminClient
from brokers.dataplane.link import Link, LinkDown
from brokers.dataplane.topics import KafkaTopicAdminClient
from brokers.dataplane.unresponsive_brokers import unresponsive_brokers
from brokers.models import Cluster
from instances.models import Instance
from quotas.interfaces import ClientQuota, EntityPart
from tenants.errors import Conflict, DomainError, Invalid, NotFound, OutcomeUnknown, Unavailable
from tests.testkit.api_cases import make_tenant
from tests.testkit.fleet import make_fleet, make_running, place

PASSWORD = "not much of a secret"
HANDSHAKE, AUTHENTICATE, METADATA, CREATE_TOPICS, DESCRIBE_QUOTAS, ALTER_QUOTAS = 17, 36, 3, 19, 48, 49
DELETE_TOPICS, CREATE_PARTITIONS = 20, 37


class SmallBroker:
    """A server that answers by API key from `answers`; it counts connections and keeps user names."""

    def __init__(self) -> None:
        self.answers: dict[int, Callable[[], Any]] = {}
        self.users: list[str] = []
        self.asked: list[int] = []
        self.hangs_up = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_all()
        for thread in self._threads:
            thread.join(5)

    def drop_all(self) -> None:
        """Closes every connection while it is idle."""
        for link in self._open:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(link)
            thread = threading.Thread(target=self._serve, args=(link,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, link: socket.socket) -> None:
        with contextlib.suppress(ConnectionError), link, link.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                raw = stream.read(struct.unpack(">i", size)[0])
                key, version, correlation_id = struct.unpack(">hhi", raw[:8])
                self.asked.append(key)
                if self.hangs_up and key not in (HANDSHAKE, AUTHENTICATE):
                    return
                answer = self._answer(key, raw)
                answer.API_VERSION = version
                answer.with_header(correlation_id=correlation_id)
                link.sendall(answer.encode(header=True, framed=True))

    def _answer(self, key: int, raw: bytes) -> Any:
        if key == HANDSHAKE:
            return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        if key == AUTHENTICATE:
            user, password = raw.rstrip(b"\0").rsplit(b"\0", 2)[-2:]
            self.users.append(user.decode())
            is_known = password.decode() == PASSWORD
            return SaslAuthenticateResponse(
                error_code=0 if is_known else 58, error_message=None, auth_bytes=b"", session_lifetime_ms=0
            )
        return self.answers[key]()


@pytest.fixture()
def broker() -> Iterator[SmallBroker]:
    server = SmallBroker()
    yield server
    admin_client.links().close()
    server.stop()


@pytest.fixture()
def cluster(db: None, tmp_path: Path, broker: SmallBroker) -> Cluster:
    fleet = make_fleet(tmp_path, brokers=2)
    fleet.brokers.filter(number=2).update(internal_port=broker.port)  # broker 1 is down
    return fleet


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    running = make_running(make_tenant())
    place(running, cluster)
    return running


def metadata(error_code: int = 0, name: str = "orders") -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic
    partitions = [
        topic.MetadataResponsePartition(
            error_code=0, partition_index=index, leader_id=2, leader_epoch=0, replica_nodes=[2], isr_nodes=[2],
            offline_replicas=[],
        )
        for index in (1, 0)
    ]  # fmt: skip
    shown = topic(
        error_code=error_code, name=name, topic_id=uuid.UUID(int=7), is_internal=False, partitions=partitions,
        authorized_operations=(),
    )  # fmt: skip
    return MetadataResponse(throttle_time_ms=0, brokers=[], cluster_id="c", controller_id=2, topics=[shown])


def created(error_code: int, message: str | None = None) -> CreateTopicsResponse:
    result = CreateTopicsResponse.CreatableTopicResult(
        name="orders", topic_id=uuid.UUID(int=7), error_code=error_code, error_message=message,
        topic_config_error_code=0, num_partitions=1, replication_factor=1, configs=[],
    )  # fmt: skip
    return CreateTopicsResponse(throttle_time_ms=0, topics=[result])


def create(instance: Instance) -> None:
    KafkaTopicAdminClient().create_topic(
        instance.pk, "orders", partitions=1, replication_factor=1, config={"a": "b"}, validate_only=False
    )


def test_topics_are_read_as_the_instance_from_a_broker_that_answers(instance: Instance, broker: SmallBroker) -> None:
    broker.answers[METADATA] = metadata
    (topic,) = KafkaTopicAdminClient().topics(instance.pk)
    assert (topic.name, topic.replication_factor) == ("orders", 1)
    assert [partition.index for partition in topic.partitions] == [0, 1]
    assert broker.users == [instance.pk]


def test_a_link_is_kept_and_a_dead_one_replaced(instance: Instance, broker: SmallBroker) -> None:
    broker.answers[METADATA] = metadata
    KafkaTopicAdminClient().topics(instance.pk)
    KafkaTopicAdminClient().topics(instance.pk)
    assert broker.users == [instance.pk]
    broker.drop_all()
    KafkaTopicAdminClient().topics(instance.pk)
    assert broker.users == [instance.pk] * 2


def test_no_broker_is_unavailable_and_says_when_to_come_back(instance: Instance, broker: SmallBroker) -> None:
    broker.answers[METADATA] = metadata
    broker.hangs_up = True
    with pytest.raises(Unavailable) as refusal:
        KafkaTopicAdminClient().topics(instance.pk)
    assert refusal.value.retry_after_s == 1
    assert PASSWORD not in str(refusal.value.__cause__)


def test_brokers_that_stand_still_make_neither_a_read_nor_a_write_wait_long(
    instance: Instance, cluster: Cluster
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        cluster.brokers.filter(number=2).update(internal_port=mute.getsockname()[1])
        for act, most_s in (
            (lambda: KafkaTopicAdminClient().topic(instance.pk, "orders"), 2.0),
            (lambda: create(instance), 2.0),
        ):
            began_s = time.monotonic()
            with pytest.raises(Unavailable):
                act()
            assert time.monotonic() - began_s < most_s
    unresponsive_brokers.clear_all()


def test_an_idle_link_to_a_broker_that_stands_still_is_not_used_for_a_write(
    instance: Instance, broker: SmallBroker
) -> None:
    broker.answers[CREATE_TOPICS] = lambda: created(0)
    create(instance)
    unresponsive_brokers.mark_unresponsive(("127.0.0.1", broker.port))
    create(instance)  # the other broker is down: this one is asked after all, over a link that greets
    assert broker.users == [instance.pk] * 2
    assert not unresponsive_brokers.is_unresponsive(("127.0.0.1", broker.port))


@pytest.mark.parametrize("error_code", [3, 17])
def test_a_topic_that_is_not_there_or_could_not_be_is_not_found_by_its_name(
    instance: Instance, broker: SmallBroker, error_code: int
) -> None:
    broker.answers[METADATA] = lambda: metadata(error_code)
    with pytest.raises(NotFound, match=r'There is no topic "a b"\.'):
        KafkaTopicAdminClient().topic(instance.pk, "a b")


def test_a_wrong_secret_never_appears_in_what_is_raised(broker: SmallBroker) -> None:
    with pytest.raises(LinkDown) as failure:
        Link(("127.0.0.1", broker.port), "ins-aaaaaaaa", "something else")
    assert "something else" not in str(failure.value)


def test_an_instance_without_brokers_is_a_conflict(db: None) -> None:
    with pytest.raises(Conflict):
        KafkaTopicAdminClient().topics(make_running(make_tenant()).pk)


@pytest.mark.parametrize(
    ("error_code", "kind", "code"),
    [
        (3, NotFound, "not_found"),
        (17, Invalid, "invalid_name"),
        (36, Conflict, "already_exists"),
        (37, Invalid, "invalid_partitions"),
        (38, Invalid, "invalid_replication_factor"),
        (40, Invalid, "invalid_config"),
        (44, DomainError, "quota_exceeded"),
        (-1, Unavailable, "unavailable"),
    ],
)
def test_a_kafka_error_becomes_what_it_means(
    instance: Instance, broker: SmallBroker, error_code: int, kind: type[DomainError], code: str
) -> None:
    broker.answers[CREATE_TOPICS] = lambda: created(error_code, "because")
    broker.answers[METADATA] = lambda: metadata(3)
    with pytest.raises(kind, match="because") as refusal:
        create(instance)
    assert refusal.value.code == code


def timed_out_growth() -> CreatePartitionsResponse:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult(name="orders", error_code=7, error_message="goes on")
    return CreatePartitionsResponse(throttle_time_ms=0, results=[result])


def deleted(error_code: int) -> DeleteTopicsResponse:
    result = DeleteTopicsResponse.DeletableTopicResult(name="orders", error_code=error_code, error_message="goes on")
    return DeleteTopicsResponse(throttle_time_ms=0, responses=[result])


def test_a_write_that_waits_for_the_controller_counts_as_done(instance: Instance, broker: SmallBroker) -> None:
    """The error is the same as for a write that failed, so the client looks at the topic."""
    topic_admin_client = KafkaTopicAdminClient()
    broker.answers[CREATE_TOPICS] = lambda: created(7, "goes on")
    broker.answers[CREATE_PARTITIONS] = timed_out_growth
    broker.answers[DELETE_TOPICS] = lambda: deleted(7)
    broker.answers[METADATA] = metadata  # two partitions
    create(instance)
    topic_admin_client.grow_topic(instance.pk, "orders", 2, validate_only=False)
    with pytest.raises(OutcomeUnknown):
        topic_admin_client.grow_topic(instance.pk, "orders", 3, validate_only=False)
    with pytest.raises(Unavailable, match="goes on"):
        topic_admin_client.grow_topic(instance.pk, "orders", 3, validate_only=True)
    with pytest.raises(OutcomeUnknown):
        topic_admin_client.delete_topic(instance.pk, "orders")
    broker.answers[METADATA] = lambda: metadata(3)
    topic_admin_client.delete_topic(instance.pk, "orders")
    with pytest.raises(OutcomeUnknown):
        create(instance)


def test_an_answer_that_is_lost_leaves_the_outcome_open(instance: Instance, broker: SmallBroker) -> None:
    broker.hangs_up = True
    for act in (lambda: create(instance), lambda: KafkaTopicAdminClient().delete_topic(instance.pk, "orders")):
        with pytest.raises(OutcomeUnknown) as message:
            act()
        assert message.value.retry_after_s == 1
    assert broker.asked.count(CREATE_TOPICS) == 1


def test_a_trial_whose_answer_is_lost_has_changed_nothing(instance: Instance, broker: SmallBroker) -> None:
    broker.hangs_up = True
    with pytest.raises(Unavailable) as message:
        KafkaTopicAdminClient().grow_topic(instance.pk, "orders", 3, validate_only=True)
    assert not isinstance(message.value, OutcomeUnknown)


def test_an_effect_of_a_lost_try_is_not_reported_as_another_clients(
    instance: Instance, cluster: Cluster, broker: SmallBroker
) -> None:
    """The first broker closes the connection after the request, the second answers its repetition."""
    first = SmallBroker()
    try:
        first.hangs_up = True
        cluster.brokers.filter(number=1).update(internal_port=first.port)
        broker.answers[CREATE_TOPICS] = lambda: created(36, "is there")
        with pytest.raises(OutcomeUnknown):
            create(instance)
        admin_client.links().close()
        broker.answers[DELETE_TOPICS] = lambda: deleted(3)
        KafkaTopicAdminClient().delete_topic(instance.pk, "orders")
        assert first.asked.count(DELETE_TOPICS) == broker.asked.count(DELETE_TOPICS) == 1
    finally:
        first.stop()


def test_an_existing_topic_is_reported_over_a_link_that_died_while_idle(
    instance: Instance, broker: SmallBroker
) -> None:
    broker.answers[METADATA] = metadata
    broker.answers[CREATE_TOPICS] = lambda: created(36, "is there")
    KafkaTopicAdminClient().topics(instance.pk)
    with pytest.raises(Conflict):
        create(instance)
    broker.drop_all()
    with pytest.raises(Conflict):
        create(instance)


def test_no_error_is_no_exception(instance: Instance, broker: SmallBroker) -> None:
    broker.answers[CREATE_TOPICS] = lambda: created(0)
    create(instance)


def test_quotas_keep_the_difference_between_a_default_and_nothing(instance: Instance, broker: SmallBroker) -> None:
    kind = DescribeClientQuotasResponse.EntryData
    entry = kind(
        entity=[kind.EntityData(entity_type="user", entity_name=None)],
        values=[kind.ValueData(key="producer_byte_rate", value=5.0)],
    )
    broker.answers[DESCRIBE_QUOTAS] = lambda: DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=0, error_message=None, entries=[entry]
    )
    assert KafkaQuotaAdminClient().describe(instance.pk) == [
        ClientQuota(user=EntityPart(name=None), client_id=None, limits={"producer_byte_rate": 5.0})
    ]


def test_a_refused_quota_is_invalid(instance: Instance, broker: SmallBroker) -> None:
    kind = AlterClientQuotasResponse.EntryData
    broker.answers[ALTER_QUOTAS] = lambda: AlterClientQuotasResponse(
        throttle_time_ms=0, entries=[kind(error_code=42, error_message="no such key", entity=[])]
    )
    with pytest.raises(Invalid, match="no such key"):
        KafkaQuotaAdminClient().alter(
            instance.pk, EntityPart(name="a"), None, {"producer_byte_rate": 1.0}, validate_only=False
        )

"""A client that was given nothing sends random legal requests to its closed instance, and reads and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import UUID_ZERO, message_class
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.topics import CreatableTopicConfig
from brokers.engine.protocol.messages.users import DescribeUsersRequest
from tests.adversarial.random_requests import Requests
from tests.adversarial.test_random_requests import Attacker
from tests.product.system.attacks import filled
from tests.testkit import depth
from tests.testkit.engine import EngineCluster
from tests.testkit.records import batch, fetch, produce
from tests.testkit.users import alter_users, user_addition
from tests.testkit.wire import WireClient

REQUESTS: Final = depth.number_from("PENSTOCK_RANDOM_REQUESTS", short=300, long=10_000)
CONNECTIONS: Final = 6
INSTANCE: Final = "ins-aaaaaaaa"
TOPIC: Final = "ledger"
USER: Final = "bookkeeper"
MARK: Final = b"only-for-the-owner"
# Named in requests, so that an answer may repeat it; records and users are not.
SECRETS: Final = (MARK, USER.encode())
DESCRIBING_APIS: Final = (
    (ApiKey.DESCRIBE_CONFIGS, 4),
    (ApiKey.LIST_OFFSETS, 7),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1),
    (ApiKey.DESCRIBE_ACLS, 3),
    (ApiKey.LIST_GROUPS, 4),
    (ApiKey.LIST_TRANSACTIONS, 0),
)


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("closed")) as running:
        yield running


async def describe_instance(owner: WireClient) -> list[Any]:
    """Returns what the owner sees of the instance: topics, configuration, records, quotas, rules, groups, users."""
    topics = (await owner.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))).topics
    answers: list[Any] = [sorted((topic.name, len(topic.partitions)) for topic in topics)]
    for api_key, version in DESCRIBING_APIS:
        request = filled(message_class(api_key, "request"), version, TOPIC, UUID_ZERO)
        answers.append(await owner.call(api_key, version, request))
    answers.append(await fetch(owner, TOPIC))
    users = (await owner.call(ApiKey.DESCRIBE_USERS, 0, DescribeUsersRequest(names=None))).users
    answers.append([(user.name, [secret.id for secret in user.secrets]) for user in users])
    return answers


async def test_a_user_without_rights_reads_and_changes_nothing(cluster: EngineCluster) -> None:
    instance = await asyncio.to_thread(cluster.create_instance, INSTANCE, allow_everyone_if_no_acl=False)
    await asyncio.to_thread(alter_users, cluster, instance, user_addition(USER, "secret", instance_id=INSTANCE))
    (broker,) = cluster.brokers
    owner = await WireClient.connect(broker.settings.internal_port)
    assert (await owner.log_in(INSTANCE, cluster.secret)).error_code == 0
    topic = filled(message_class(ApiKey.CREATE_TOPICS, "request"), 7, TOPIC, UUID_ZERO)
    # Kept for ever: the records of `batch` are old.
    topic.validate_only, topic.topics[0].configs = False, [CreatableTopicConfig(name="retention.ms", value="-1")]
    assert (await owner.call(ApiKey.CREATE_TOPICS, 7, topic)).topics[0].error_code == 0
    assert (await produce(owner, TOPIC, batch(MARK))).error_code == 0
    metadata = await owner.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    before = await describe_instance(owner)

    names = (TOPIC, "g", "t", "another", "__consumer_offsets", "kafka-cluster", "User:ANONYMOUS", "client-id")
    requests = Requests(Random(depth.SEED), names, [bytes(item.topic_id) for item in metadata.topics])
    (port,) = instance.document.ports.values()
    attackers = [Attacker(port) for _ in range(CONNECTIONS)]
    answers = 0
    for _ in range(0, REQUESTS, CONNECTIONS):
        drawn_requests = [requests.draw() for _ in attackers]
        results = await asyncio.gather(
            *(attacker.send(request) for attacker, request in zip(attackers, drawn_requests, strict=True))
        )
        for request, answer in zip(drawn_requests, results, strict=True):
            answers += answer is not None
            leaked = [secret for secret in SECRETS if secret in (answer or b"")]
            assert not leaked, f"{request} was answered with {leaked} (PENSTOCK_TESTS_SEED={depth.SEED})"
    for attacker in attackers:
        await attacker.close()

    assert answers > REQUESTS // 2
    assert await describe_instance(owner) == before, f"PENSTOCK_TESTS_SEED={depth.SEED}"
    await owner.close()

"""Random legal requests of any size, of any API in any version: each is answered or ends its connection, no turn of the
loop is long, nothing of a neighbour's is seen or changed, and the broker does not grow (I.6, CKA-17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import UUID_ZERO, message_class
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.topics import CreatableTopicConfig
from tests.adversarial.conftest import with_topic
from tests.adversarial.hostile import TOPIC, Neighbour
from tests.adversarial.random_requests import DrawnRequest, Requests
from tests.product.system.attacks import filled
from tests.testkit import depth
from tests.testkit.engine import EngineCluster
from tests.testkit.records import batch, fetch, produce
from tests.testkit.wire import WireClient

REQUESTS: Final = depth.number_from("PENSTOCK_RANDOM_REQUESTS", short=300, long=10_000)
CONNECTIONS: Final = 6
ANSWERED_WITHIN_S: Final = 60.0
# For a machine with other work; the aim on an idle one is 10 ms (docs/explanation/SECURITY.md).
LONGEST_TURN_MS_MAX: Final = depth.number_from("PENSTOCK_LONGEST_TURN_MS", short=2_000, long=2_000)
RSS_GROWTH_BYTES_MAX: Final = 192 * 1024 * 1024
MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
SECRET_TOPIC: Final = "unreleased"
MARK: Final = b"only-for-the-owner"
# No request contains one of these, so no answer may.
SECRETS: Final = (THEIRS.encode(), SECRET_TOPIC.encode(), MARK)
PARTITIONS_BOUGHT: Final = 60


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    """Returns a cluster of its own: leftovers of random requests would disturb other measurements."""
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("random")) as running:
        yield running


async def describe_secret_topic(client: WireClient) -> list[Any]:
    """Returns everything that a neighbour can see of its own secret topic."""
    metadata = await client.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    answers: list[Any] = [sorted((topic.name, len(topic.partitions)) for topic in metadata.topics)]
    for api_key, version in (
        (ApiKey.DESCRIBE_CONFIGS, 4),
        (ApiKey.LIST_OFFSETS, 7),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1),
    ):
        request = filled(message_class(api_key, "request"), version, SECRET_TOPIC, UUID_ZERO)
        answers.append(await client.call(api_key, version, request))
    answers.append(await fetch(client, SECRET_TOPIC))
    return answers


class Attacker:
    """One connection after the other, each until it is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client: WireClient | None = None

    async def send(self, drawn: DrawnRequest) -> bytes | None:
        """The answer, None where the connection was closed instead."""
        self._client = client = self._client or await WireClient.connect(self._port)
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await client.send_raw(drawn.frame)
                size = await client.reader.readexactly(4)
                return await client.reader.readexactly(int.from_bytes(size, "big"))
        except TimeoutError:
            raise AssertionError(f"neither answered nor closed: {drawn}") from None
        except (ConnectionError, asyncio.IncompleteReadError):
            await self.close()
            return None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def test_random_legal_requests_are_answered_and_hurt_nobody(cluster: EngineCluster, tmp_path: Path) -> None:
    my_instance, their_instance = with_topic(cluster, MINE), with_topic(cluster, THEIRS)
    my_instance = cluster.update_instance(my_instance, partitions_max=PARTITIONS_BOUGHT)
    my_port, their_port = (next(iter(instance.document.ports.values())) for instance in (my_instance, their_instance))
    owner = await WireClient.connect(their_port)
    topic = filled(message_class(ApiKey.CREATE_TOPICS, "request"), 7, SECRET_TOPIC, UUID_ZERO)
    # For ever: the records of `batch` are old.
    topic.validate_only, topic.topics[0].configs = False, [CreatableTopicConfig(name="retention.ms", value="-1")]
    assert (await owner.call(ApiKey.CREATE_TOPICS, 7, topic)).topics[0].error_code == 0
    assert (await produce(owner, SECRET_TOPIC, batch(MARK))).error_code == 0
    metadata = await owner.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    before = await describe_secret_topic(owner)
    broker = cluster.brokers[0]

    names = (TOPIC, "g", "t", "another", f"{MINE}.{TOPIC}", "__consumer_offsets", "retention.ms", "client-id")
    requests = Requests(Random(depth.SEED), names, [bytes(item.topic_id) for item in metadata.topics])
    attackers = [Attacker(my_port) for _ in range(CONNECTIONS)]
    neighbour, stop = Neighbour(their_port, TOPIC), asyncio.Event()
    producing = asyncio.create_task(neighbour.produce_until(stop))
    status_before = broker.admin("/v1/status")
    longest_ms, longest_in, answers = 0.0, "", 0
    for _ in range(0, REQUESTS, CONNECTIONS):
        drawn_requests = [requests.draw() for _ in attackers]
        results = await asyncio.gather(
            *(attacker.send(request) for attacker, request in zip(attackers, drawn_requests, strict=True))
        )
        for request, answer in zip(drawn_requests, results, strict=True):
            answers += answer is not None
            leaked = [secret for secret in SECRETS if secret in (answer or b"")]
            assert not leaked, f"{request} was answered with {leaked} (PENSTOCK_TESTS_SEED={depth.SEED})"
        turns = broker.admin("/v1/status")["loop_turns"]
        if turns["longest_ms"] > longest_ms:
            longest_ms = turns["longest_ms"]
            longest_in = f"{turns['longest_of']} among {', '.join(map(str, drawn_requests))}"
    stop.set()
    await producing
    for attacker in attackers:
        await attacker.close()

    after = broker.admin("/v1/status")
    print(
        f"{answers} of {REQUESTS} answered; longest turn {longest_ms} ms: {longest_in}; over 10 ms: "
        f"{after['loop_turns']['by_api']}; neighbour p99 {neighbour.percentile_ms(99):.1f} ms; "
        f"RSS grew {(after['rss_bytes'] - status_before['rss_bytes']) >> 20} MiB; seed {depth.SEED}"
    )
    assert await describe_secret_topic(owner) == before
    assert neighbour.latencies_ms and neighbour.errors == 0
    assert longest_ms <= LONGEST_TURN_MS_MAX, longest_in
    assert after["rss_bytes"] - status_before["rss_bytes"] <= RSS_GROWTH_BYTES_MAX
    await owner.close()

"""Settings that an operator changes on a running broker apply at once, and tenants cannot set them (QUO-60, ZK-13).

Error codes are compared with Apache Kafka in `tests/differential/trio`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokers.contract import paths, usage_columns
from brokers.contract.documents import config_change_to_json
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import RECORD_VERSION_SETTING, USAGE_TOPIC, UsageEvent
from brokers.engine.cluster.tree import Create, Set
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, fetch, produce, values
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import config_of
from tests.unit.brokers.engine.handlers.conftest import MINE, House

SET, DELETE = 0, 1
LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
OWN, ALL = "1", ""


@pytest.fixture
def overrides() -> dict[str, str]:
    return {LEADER: "7000", "log.retention.hours": "2"}


async def operator(house: House) -> WireClient:
    return await house.broker.internal_client(CLUSTER_USER)


async def alter(client: WireClient, name: str, *changes: tuple[str, str | None]) -> int:
    """Alters settings; a value of None deletes."""
    configs = [
        IncrementalAlterableConfig(name=key, config_operation=SET if value is not None else DELETE, value=value)
        for key, value in changes
    ]
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    return int(answer.responses[0].error_code)


async def replace(client: WireClient, name: str, **values: str) -> int:
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    return int((await client.call(ApiKey.ALTER_CONFIGS, 2, request)).responses[0].error_code)


async def write(house: House, name: str, body: bytes, announced: bytes | None = None) -> None:
    """Writes to ZooKeeper directly, as an operator with a ZooKeeper shell might."""
    path = f"{paths.BROKER_CONFIGS}/{name}"
    store = Create(path, body) if await house.broker.tree.get(path) is None else Set(path, body, None)
    announcement = announced if announced is not None else config_change_to_json(f"brokers/{name}")
    await house.broker.tree.commit([store, Create(paths.CONFIG_CHANGE_PREFIX, announcement, sequence=True)])


def rates(house: House) -> tuple[int, int]:
    broker = house.broker.broker
    follower = broker.replication.follower_throttle
    return broker.services.storage.replication_throttle.limit_bytes_per_s, follower.limit_bytes_per_s


async def test_a_rate_is_replaced_on_the_throttle_there_is_with_what_was_copied_lately(house: House) -> None:
    client = await operator(house)
    services = house.broker.broker.services
    throttle = services.storage.replication_throttle
    throttle.record(100_000, services.clock.monotonic_ms())

    assert await alter(client, OWN, (LEADER, "1000000"), (FOLLOWER, "5000")) == 0

    assert rates(house) == (1_000_000, 5_000)
    assert services.storage.replication_throttle is throttle
    assert not throttle.is_exceeded(services.clock.monotonic_ms())
    assert await alter(client, OWN, (LEADER, "1000")) == 0
    assert throttle.is_exceeded(services.clock.monotonic_ms())


async def test_a_removed_setting_falls_back_step_by_step(house: House) -> None:
    client = await operator(house)

    assert await alter(client, ALL, (LEADER, "3000"), (FOLLOWER, "3000")) == 0
    assert await alter(client, OWN, (LEADER, "2000")) == 0
    assert rates(house) == (2000, 3000)
    (line,) = (await config_of(client, OWN, LEADER, kind=4)).configs
    assert (line.value, line.config_source, line.read_only) == ("2000", 2, False)
    assert [(synonym.value, synonym.source) for synonym in line.synonyms] == [
        ("2000", 2),
        ("3000", 3),
        ("7000", 4),
        (str(2**63 - 1), 5),
    ]
    assert await alter(client, OWN, (LEADER, None)) == 0
    assert rates(house) == (3000, 3000)
    assert await replace(client, ALL) == 0
    assert rates(house) == (7000, 2**63 - 1)


async def test_another_brokers_values_are_not_ours(house: House) -> None:
    before = rates(house)
    seen = house.broker.broker.current.image.broker_configs

    await write(house, "2", b'{"version":1,"config":{"%s":"5"}}' % LEADER.encode())
    await house.broker.until(lambda: house.broker.broker.current.image.broker_configs is not seen)

    assert rates(house) == before


@pytest.mark.usefixtures("administered")
@pytest.mark.parametrize("inside", [False, True], ids=["at its own port", "on the internal listener"])
async def test_a_tenant_can_neither_set_nor_see_them(house: House, inside: bool) -> None:
    client = await house.broker.internal_client(MINE) if inside else house.mine
    await alter(await operator(house), OWN, (LEADER, "2000"))

    for name in (OWN, ALL):
        assert await alter(client, name, (LEADER, "5")) == ErrorCode.POLICY_VIOLATION
        assert await replace(client, name, message_max_bytes="5") == ErrorCode.POLICY_VIOLATION
    lines = {line.name: line for line in (await config_of(client, OWN, kind=4)).configs}
    assert LEADER not in lines and "log.dirs" not in lines
    assert all(line.read_only for line in lines.values())
    assert rates(house)[0] == 2000


async def test_topics_without_a_word_of_their_own_go_by_it_from_the_next_batch_on(house: House) -> None:
    await house.topic("plain")
    await house.topic("choosy", max_message_bytes="1000000")
    large = batch(b"x" * 5000)
    client = await operator(house)

    assert await alter(client, ALL, ("message.max.bytes", "4000")) == 0

    (line,) = (await config_of(house.mine, "plain", "max.message.bytes")).configs
    assert (line.value, line.config_source) == ("4000", 4), "a tenant is not told of all brokers and one"
    assert [(synonym.value, synonym.source) for synonym in line.synonyms] == [("4000", 4), ("1048588", 5)]
    assert (await produce(house.mine, "plain", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await produce(house.mine, "choosy", large)).error_code == 0
    (line,) = (await config_of(client, f"{MINE}.plain", "max.message.bytes")).configs
    assert (line.value, line.config_source) == ("4000", 3), "an operator is"
    assert await alter(client, ALL, ("message.max.bytes", None)) == 0
    assert (await produce(house.mine, "plain", large)).error_code == 0


async def test_fallbacks_of_the_retention_are_described(house: House) -> None:
    client = await operator(house)

    async def retention() -> tuple[str, int, list[tuple[str, str]]]:
        (line,) = (await config_of(client, OWN, "log.retention.ms", kind=4)).configs
        return line.value, line.config_source, [(synonym.name, synonym.value) for synonym in line.synonyms]

    hours = [("log.retention.hours", "2"), ("log.retention.hours", "168")]
    assert await retention() == ("7200000", 4, hours)
    assert await alter(client, OWN, ("log.retention.ms", "5000")) == 0
    assert await retention() == ("5000", 2, [("log.retention.ms", "5000"), *hours])


async def test_the_controller_may_elect_who_lost_records_as_soon_as_operators_say_so(house: House) -> None:
    controller = house.broker.broker.controller
    await house.broker.until(lambda: controller.is_controller)

    assert await alter(await operator(house), ALL, ("unclean.leader.election.enable", "true")) == 0
    await house.broker.until(lambda: controller.state.policy.unclean_allowed)
    assert await alter(await operator(house), OWN, ("unclean.leader.election.enable", "false")) == 0
    await house.broker.until(lambda: not controller.state.policy.unclean_allowed)


async def test_transactions_are_verified_as_operators_say(house: House) -> None:
    services = house.broker.broker.services

    assert await alter(await operator(house), ALL, ("transaction.partition.verification.enable", "false")) == 0

    assert not services.coordination.settings.transactions.verifies_partitions


@pytest.mark.parametrize("name", ["9" * 5_000, "2", "one"])
async def test_a_name_that_is_no_id_of_this_broker_is_refused(house: House, name: str) -> None:
    client = await operator(house)
    assert (await config_of(client, name, kind=4)).error_code == ErrorCode.INVALID_REQUEST
    assert await alter(client, name, (LEADER, "1")) == ErrorCode.INVALID_REQUEST


async def test_groups_are_bounded_as_operators_say(house: House) -> None:
    client, services = await operator(house), house.broker.broker.services
    before = services.coordination.settings.groups

    values = (("group.initial.rebalance.delay.ms", "7"), ("group.max.size", "3"))
    assert await alter(client, ALL, *values, ("group.min.session.timeout.ms", "20000")) == 0
    assert await alter(client, OWN, ("group.max.session.timeout.ms", "30000")) == 0
    groups = services.coordination.settings.groups
    assert (groups.initial_rebalance_delay_ms, groups.members_max) == (7, 3)
    assert (groups.session_timeout_ms_min, groups.session_timeout_ms_max) == (20_000, 30_000)
    (line,) = (await config_of(client, OWN, "group.min.session.timeout.ms", kind=4)).configs
    assert (line.value, line.config_source, line.read_only) == ("20000", 3, False)

    assert await alter(client, ALL, ("group.min.session.timeout.ms", "30001")) == ErrorCode.INVALID_REQUEST
    assert services.coordination.settings.groups == groups, "no session could be both"
    assert await alter(client, OWN, ("group.max.session.timeout.ms", None)) == 0
    assert await replace(client, ALL) == 0
    assert services.coordination.settings.groups == before


WRONG_GROUPS = [("group.initial.rebalance.delay.ms", "-1"), ("group.min.session.timeout.ms", "0")]
WRONG_GROUPS += [("group.max.session.timeout.ms", str(2**31)), ("group.max.size", "0"), ("group.max.size", "many")]


@pytest.mark.parametrize(("key", "value"), WRONG_GROUPS)
async def test_bounds_of_groups_that_make_no_sense_are_refused(house: House, key: str, value: str) -> None:
    before = house.broker.broker.services.coordination.settings

    assert await alter(await operator(house), ALL, (key, value)) == ErrorCode.INVALID_REQUEST

    assert house.broker.broker.services.coordination.settings is before


async def test_values_that_cannot_be_together_are_refused_and_change_nothing(house: House) -> None:
    client = await operator(house)

    assert await alter(client, OWN, ("log.cleaner.dedupe.buffer.size", str(2 << 20))) == 0
    assert await alter(client, OWN, ("log.cleaner.threads", "3")) == ErrorCode.INVALID_REQUEST
    assert await alter(client, OWN, ("log.cleaner.threads", "2")) == 0


MALFORMED = [b"", b"\xff", b"[]", b"{", b'{"version":1}', b'{"config":5}', b'{"config":{"%s":5}}' % LEADER.encode()]
MALFORMED += [b'{"config":{"%s":"%s"}}' % (LEADER.encode(), value) for value in (b"fast", b"-1", b"", b"1e3")]


@pytest.mark.parametrize("body", MALFORMED)
@pytest.mark.parametrize("name", [OWN, "<default>"])
async def test_an_invalid_document_in_zookeeper_is_ignored_and_stops_nobody(
    house: House, name: str, body: bytes
) -> None:
    before = rates(house)
    await write(house, name, body)

    assert await alter(await operator(house), ALL, (FOLLOWER, "77")) == 0
    assert rates(house) == (before[0], 77)


ANNOUNCED = [b"", b"{", b'{"version":3}', b'{"version":2,"entity_path":5}', b'{"version":2,"entity_path":"brokers/x"}']
ANNOUNCED += [b'{"version":2,"entity_path":"brokers/"}', b'{"version":2,"entity_path":"brokers/1/2"}']


@pytest.mark.parametrize("announced", ANNOUNCED)
async def test_an_announcement_that_makes_no_sense_stops_nobody(house: House, announced: bytes) -> None:
    await write(house, "2", b"{}", announced)

    assert await alter(await operator(house), OWN, (FOLLOWER, "77")) == 0
    assert rates(house)[1] == 77


async def test_the_older_form_of_an_announcement_is_understood(house: House) -> None:
    body = b'{"version":1,"config":{"%s":"99"}}' % FOLLOWER.encode()
    await write(house, "1", body, b'{"version":1,"entity_type":"brokers","entity_name":"1"}')

    await house.broker.until(lambda: rates(house)[1] == 99)


async def test_values_that_cannot_be_together_in_zookeeper_leave_what_was_in_force(house: House) -> None:
    await write(house, OWN, b'{"config":{"log.cleaner.dedupe.buffer.size":"1048576","log.cleaner.threads":"9"}}')

    assert await alter(await operator(house), ALL, (FOLLOWER, "77")) == 0
    assert rates(house)[1] == 77


async def test_a_broker_that_starts_goes_by_what_was_set_before(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as first:
        client = await first.internal_client(CLUSTER_USER)
        assert await alter(client, OWN, (FOLLOWER, "4444"), ("message.max.bytes", "5000")) == 0
        assert await alter(client, ALL, (LEADER, "5555"), ("log.cleaner.threads", "2")) == 0
    second = InProcessBroker(tmp_path, ensemble=first.ensemble)
    async with second:
        services = second.broker.services
        assert services.storage.replication_throttle.limit_bytes_per_s == 5555
        assert second.broker.replication.follower_throttle.limit_bytes_per_s == 4444
        assert services.metadata.topic_defaults["max.message.bytes"] == "5000"
        client = await second.internal_client(CLUSTER_USER)
        assert await replace(client, OWN) == 0
        assert services.metadata.topic_defaults == {}


async def test_an_operator_sees_what_a_broker_was_started_with_to_read_only(house: House) -> None:
    lines: dict[str, Any] = {line.name: line for line in (await config_of(await operator(house), OWN, kind=4)).configs}

    assert (lines["broker.id"].value, lines["broker.id"].config_source) == ("1", 4)
    assert (lines["log.dirs"].read_only, lines["socket.request.max.bytes"].config_source) == (True, 5)
    assert not lines["message.max.bytes"].read_only
    assert all(line.documentation and not line.is_sensitive for line in lines.values())
    assert not any("secret" in str(line.value) and "data" not in str(line.value) for line in lines.values())


async def records_of_a_report(house: House, client: WireClient, count: int) -> list[bytes]:
    """The records of one more report of two counters."""
    usage = house.broker.broker.accountings.get_or_create(MINE).usage
    for client_id in ("a", "b"):
        usage.counter("orders", "app", client_id, "produce").add(count)
    before = values((await fetch(client, USAGE_TOPIC)).records)
    assert await house.broker.broker.metering.report()
    return [value for value in values((await fetch(client, USAGE_TOPIC)).records)[len(before) :] if value is not None]


async def test_usage_is_written_in_the_version_that_the_setting_names_from_the_next_report_on(house: House) -> None:
    """Readers of version 1 alone are never given another one: without the setting it is version 1."""
    client = await operator(house)
    metering = house.broker.broker.metering
    await house.broker.until(lambda: metering.broker_epoch is not None and metering._partition() is not None)
    await records_of_a_report(house, client, 5)
    events = [UsageEvent.from_json(raw) for raw in await records_of_a_report(house, client, 10)]
    assert sorted(event.bytes for event in events) == [15, 15]

    assert await alter(client, ALL, (RECORD_VERSION_SETTING, "2")) == 0
    (raw,) = await records_of_a_report(house, client, 20)
    assert raw.startswith(usage_columns.BEGINNING)
    assert [(event.sequence, event.bytes) for event in usage_columns.events_in(raw)] == [(3, 35), (3, 35)]

    assert await alter(client, OWN, (RECORD_VERSION_SETTING, "1")) == 0
    assert len(await records_of_a_report(house, client, 1)) == 2
    for value in ("0", "3", "", "two"):
        assert await alter(client, ALL, (RECORD_VERSION_SETTING, value)) != 0

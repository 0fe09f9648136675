"""A user without rights: denied every call in a closed instance, and administration in an open one."""

from __future__ import annotations

import pytest

from brokers.contract.acl_decisions import OPEN_CLUSTER_OPERATIONS
from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.served_api import DENIALS
from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResource
from tests.testkit.records import batch, produce
from tests.testkit.rights import acl, client_as, create_acls
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import config_of, quotas_of
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House
from tests.unit.brokers.engine.handlers.test_topic_lists import a_topic_with_a_group, asking

CLUSTER = ResourceType.CLUSTER
DENIED_CLUSTER = DENIALS[CLUSTER]
ADMINISTRATION = (AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.CLUSTER_ACTION)
ADMINISTERING = [
    api_key
    for api_key in ADVERTISED_TENANT
    if API_TABLE[api_key].rights.operations.get(CLUSTER) in ADMINISTRATION
    and len(API_TABLE[api_key].rights.operations) == 1
]
RIGHTS = [api.rights for api in API_TABLE.values()]
BROKER = 4
# Versions of AddPartitionsToTxn from this one on are reserved for brokers.
ASKED_BY_BROKERS = 4
# Calls that respond without a denial: their responses omit resources, or are public.
WITHOUT_A_DENIAL = {
    ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_TRANSACTIONS,
}  # fmt: skip


def test_each_operation_on_the_cluster_is_open_or_administers() -> None:
    every = {operation for required in RIGHTS for operation, kind in required.other_operations if kind is CLUSTER}
    every |= {required.operations[CLUSTER] for required in RIGHTS if CLUSTER in required.operations}
    assert every - OPEN_CLUSTER_OPERATIONS <= set(ADMINISTRATION)
    assert not OPEN_CLUSTER_OPERATIONS & set(ADMINISTRATION)
    assert set(ADMINISTERING) == {
        ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }  # fmt: skip


async def state_of(owner: WireClient) -> tuple[object, ...]:
    """Returns the state that a stranger could have changed, as the owner sees it."""
    config = sorted((line.name, line.value) for line in (await config_of(owner, "orders")).configs)
    quotas = [repr(entry) for entry in (await quotas_of(owner)).entries]
    answers = [
        repr(await owner.call(question.api_key, question.version, question.request))
        for api_key in (ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_ACLS, ApiKey.OFFSET_FETCH)
        for question in list(asking(api_key, bytes(16)))[-1:]
    ]
    return config, quotas, answers


@pytest.mark.parametrize("user", ["alice", "ANONYMOUS"])
@pytest.mark.parametrize("api_key", ADVERTISED_TENANT, ids=lambda api_key: api_key.name.lower())
async def test_a_user_given_nothing_is_refused_each_call_of_a_closed_instance(
    house: House, api_key: ApiKey, user: str
) -> None:
    """Covers every version, by name and by id; nothing is changed afterwards."""
    required = API_TABLE[api_key].rights
    topic_id = await a_topic_with_a_group(house)
    assert (await produce(house.mine, "orders", batch(b"kept"))).error_code == 0
    await house.broker.update_instance(MINE, allow_everyone_if_no_acl=False)
    stranger = house.mine if user == "ANONYMOUS" else await client_as(house.broker, MINE, user)
    owner = await house.broker.internal_client(MINE)
    before = await state_of(owner)

    for question in asking(api_key, topic_id):
        codes = await question.codes(stranger)
        if required.operations and api_key not in WITHOUT_A_DENIAL:
            assert codes & set(DENIALS.values()), (question, codes)

    assert await state_of(owner) == before


@pytest.mark.parametrize("api_key", ADMINISTERING, ids=lambda api_key: api_key.name.lower())
async def test_administering_an_open_instance_takes_a_rule(house: House, api_key: ApiKey) -> None:
    """Denied without a rule and with rules for other resources, allowed by a rule; the owner needs none."""
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")

    async def codes(client: WireClient) -> list[set[int]]:
        return [await question.codes(client) for question in asking(api_key, bytes(16))]

    for client in (house.mine, alice):
        assert all(DENIED_CLUSTER in found for found in await codes(client))
    assert not any(DENIED_CLUSTER in found for found in await codes(owner))
    everything = acl("User:alice", AclOperation.ALL, ResourceType.TOPIC, "*")
    assert await create_acls(owner, everything) == [0]
    assert all(DENIED_CLUSTER in found for found in await codes(alice))

    operation = API_TABLE[api_key].rights.operations[CLUSTER]
    assert await create_acls(owner, acl("User:alice", operation, CLUSTER, CLUSTER_NAME)) == [0]
    assert not any(DENIED_CLUSTER in found for found in await codes(alice))
    assert all(DENIED_CLUSTER in found for found in await codes(house.mine))
    # A rule of one instance has no effect in another one.
    foreign = await client_as(house.broker, THEIRS, "alice")
    assert all(DENIED_CLUSTER in found for found in await codes(foreign))


async def test_an_open_instance_serves_stock_clients_without_a_rule(house: House) -> None:
    """Stock clients create topics, write idempotently, and list groups and configuration."""
    topic_id = await a_topic_with_a_group(house)
    alice = await client_as(house.broker, MINE, "alice")
    for api_key in ADVERTISED_TENANT:
        if API_TABLE[api_key].rights.operations.get(CLUSTER) in ADMINISTRATION or api_key is ApiKey.DELETE_TOPICS:
            continue
        for question in asking(api_key, topic_id):
            if api_key is not ApiKey.ADD_PARTITIONS_TO_TXN or question.version < ASKED_BY_BROKERS:
                assert not await question.codes(alice) & set(DENIALS.values()), question


async def test_configuring_brokers_takes_a_rule_in_an_open_instance(house: House) -> None:
    resource = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await house.mine.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert [response.error_code for response in answer.responses] == [DENIED_CLUSTER]
